//! Three servers of ZooKeeper, as the tests have them.

use std::path::Path;

use lockkeeper_testbed::{Config, Ensemble, Host, Network};

use super::Servers;

/// Starts them.
pub(super) fn start() -> anyhow::Result<Ensemble> {
    let ensemble = Ensemble::start(Config::default())?;
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
}
