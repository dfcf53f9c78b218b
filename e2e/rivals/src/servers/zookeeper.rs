//! Three servers of ZooKeeper, as the tests have them.

use std::path::Path;

use lockkeeper_testbed::{Config, Ensemble, Host, Network};

use super::{Servers, Version};

pub(super) fn start() -> anyhow::Result<Ensemble> {
    let ensemble = Ensemble::start(Config {
        // As in production, and as the others have it: an acknowledged write is on the disk.
        java_arguments: vec!["-Dzookeeper.forceSync=yes".to_owned()],
        // As in `zoo_sample.cfg`. A server that is cut off drops its clients before the fault ends.
        sync_limit: 5,
        ..Config::default()
    })?;
    ensemble.network().can_cut()?;
    Ok(ensemble)
}

impl Servers for Ensemble {
    fn network(&self) -> &Network {
        Self::network(self)
    }

    fn directory(&self) -> &Path {
        Self::directory(self)
    }

    fn names(&self) -> &Path {
        Self::names(self)
    }

    fn addresses(&self) -> String {
        self.connect_string()
    }

    fn hosts(&self) -> Vec<Host> {
        (0..self.len())
            .map(|server| self.server(server).clone())
            .collect()
    }

    fn leader(&self) -> Option<usize> {
        Self::leader(self)
    }

    fn kill(&mut self, server: usize) {
        Self::kill(self, server);
    }

    fn launch(&mut self, server: usize) -> anyhow::Result<()> {
        Self::launch(self, server)
    }

    fn all_serve(&self) -> bool {
        (0..self.len()).all(|server| self.mode(server).serves()) && Self::leader(self).is_some()
    }

    fn versions(&self) -> Option<Vec<Version>> {
        let mntr = self.ask(0, "mntr")?;
        let line = mntr.lines().find_map(|line| line.strip_prefix("zk_version\t"))?;
        // What follows is the commit, and when it was built.
        Some(vec![("ZooKeeper", line.split('-').next()?.to_owned())])
    }

    fn requests(&self) -> Option<f64> {
        let count = |server| {
            let mntr = self.ask(server, "mntr")?;
            let line = mntr
                .lines()
                .find_map(|line| line.strip_prefix("zk_packets_received\t"))?;
            line.trim().parse::<f64>().ok()
        };
        (0..self.len()).map(count).sum()
    }
}
