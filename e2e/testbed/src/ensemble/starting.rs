//! Starts and restarts servers, and waits until they serve.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::anyhow;

use super::config::Config;
use super::servers::Ensemble;
use crate::java::Release;
use crate::process::wait_for;

/// On a small machine, with others starting at the same time, a server takes a second or two.
pub(super) const START_BOUND: Duration = Duration::from_secs(60);

impl Ensemble {
    /// Starts the servers and waits until they serve.
    ///
    /// First it ends the processes that a killed harness has left. It may replace this process: see
    /// [`Network::new`](crate::Network::new).
    pub fn start(config: Config) -> anyhow::Result<Self> {
        let ensemble = Self::down(config)?;
        for index in 0..ensemble.len() {
            ensemble.write_configuration(index)?;
            ensemble.launch(index)?;
        }
        ensemble.wait_ready()?;
        Ok(ensemble)
    }

    /// Kills a server if it runs, starts it again, and waits until it serves clients.
    ///
    /// # Errors
    /// When it does not serve within a minute: there may be no quorum to join.
    pub fn restart(&self, server: usize) -> anyhow::Result<()> {
        self.kill(server);
        self.launch(server)?;
        wait_for(START_BOUND, || self.mode(server).serves().then_some(())).ok_or_else(|| {
            anyhow!(
                "{} did not serve within {START_BOUND:?}:\n{}",
                self.server(server).name(),
                self.log_end(server)
            )
        })
    }

    /// As [`Ensemble::restart`]; from now on its `zoo.cfg` has further lines.
    pub fn restart_with(&self, server: usize, lines: &[(&str, &str)]) -> anyhow::Result<()> {
        let path = self.configuration(server);
        let mut text = fs::read_to_string(&path)?;
        for (key, value) in lines {
            writeln!(text, "{key}={value}")?;
        }
        fs::write(path, text)?;
        self.restart(server)
    }

    /// As [`Ensemble::restart`], with another release on the same data.
    pub fn upgrade(&mut self, server: usize, release: Release) -> anyhow::Result<()> {
        // Before the server is down, since it may have to be fetched.
        release.classpath()?;
        self.set_release(server, release);
        self.restart(server)
    }

    /// The members in the order in which an administrator restarts them: the leader last.
    pub fn rolling_order(&self) -> Vec<usize> {
        // A busy server may leave a question unanswered.
        let leader = wait_for(START_BOUND, || self.leader());
        let mut order = self.members();
        order.retain(|&index| Some(index) != leader);
        order.extend(leader);
        order
    }

    /// Restarts all servers, one after the other, the leader last, as an administrator does.
    pub fn rolling_restart(&self) -> anyhow::Result<()> {
        for index in self.rolling_order() {
            self.restart(index)?;
            self.wait_for_quorum()?;
        }
        Ok(())
    }

    /// Waits until every server that has been started serves, and one leads.
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        let all = || {
            self.members()
                .into_iter()
                .filter(|&index| self.pid(index).is_some())
                .all(|index| self.mode(index).serves())
        };
        wait_for(START_BOUND, || all().then_some(())).ok_or_else(|| {
            let logs: String = (0..self.len())
                .map(|index| format!("--- {}:\n{}\n", self.server(index).name(), self.log_end(index)))
                .collect();
            anyhow!("the servers did not all serve within {START_BOUND:?}\n{logs}")
        })?;
        self.wait_for_quorum()
    }

    /// Waits until a leader has enough followers to commit.
    pub fn wait_for_quorum(&self) -> anyhow::Result<()> {
        let needed = self.members().len() / 2;
        let formed = || {
            let leader = self.leader()?;
            (needed == 0 || self.synced_followers(leader)? >= needed).then_some(())
        };
        wait_for(START_BOUND, formed).ok_or_else(|| anyhow!("no quorum within {START_BOUND:?}"))
    }

    pub(super) fn log_end(&self, server: usize) -> String {
        let log = self.log(server);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Waits until one member leads and all others follow it, up to date. Returns the leader and its
    /// followers.
    ///
    /// # Errors
    /// When that does not happen within a minute: a server may be down.
    pub fn wait_for_roles(&self) -> anyhow::Result<(usize, Vec<usize>)> {
        let others = self.members().len() - 1;
        let roles = || {
            let leader = self.leader()?;
            let followers = self.followers();
            let are_all_there =
                followers.len() == others && (others == 0 || self.synced_followers(leader)? >= others);
            are_all_there.then_some((leader, followers))
        };
        wait_for(START_BOUND, roles)
            .ok_or_else(|| anyhow!("not every server led or followed within {START_BOUND:?}"))
    }
}
