//! Servers that join and leave while the others run, by ZooKeeper's own reconfiguration.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use zookeeper_client::{Client, EnsembleUpdate};

use super::client::{block_on, connector};
use super::servers::{Ensemble, SUPER};
use super::starting::START_BOUND;
use crate::process::wait_for;

impl Ensemble {
    /// Starts this many new servers beside the members, makes them members in one reconfiguration, and waits
    /// until all members lead or follow. Returns the new ones.
    ///
    /// Only with [`Config::reconfigurable`](super::Config::reconfigurable).
    ///
    /// # Errors
    /// When they do not serve, or are not accepted, within a minute each.
    pub fn add(&mut self, count: usize) -> anyhow::Result<Vec<usize>> {
        let mut added = Vec::new();
        for _ in 0..count {
            let server = self.make_server()?;
            self.write_configuration(server)?;
            self.launch(server)?;
            added.push(server);
        }
        // They copy the leader's data first, without a vote.
        for &server in &added {
            wait_for(START_BOUND, || self.mode(server).serves().then_some(())).with_context(|| {
                format!(
                    "{} does not follow:\n{}",
                    self.server(server).name(),
                    self.log_end(server)
                )
            })?;
        }
        self.reconfigure(&added, &[])?;
        Ok(added)
    }

    /// Takes members out in one reconfiguration, and waits until all that stay lead or follow. Those that
    /// are out run on, without a vote, until [`Ensemble::kill`].
    ///
    /// Only with [`Config::reconfigurable`](super::Config::reconfigurable).
    ///
    /// # Errors
    /// When the others do not accept that within a minute.
    pub fn remove(&mut self, leaving: &[usize]) -> anyhow::Result<()> {
        self.reconfigure(&[], leaving)
    }

    fn reconfigure(&mut self, joining: &[usize], leaving: &[usize]) -> anyhow::Result<()> {
        ensure!(
            self.config().reconfigurable,
            "the ensemble was not made reconfigurable"
        );
        let mut members = self.members();
        members.retain(|member| !leaving.contains(member));
        // A server that leaves may close our connection.
        let connect = self.connect_string_of(&members);
        members.extend(joining);
        let lines: Vec<_> = joining.iter().map(|&server| self.server_line(server)).collect();
        let ids: Vec<_> = leaving.iter().map(|&server| id(server).to_string()).collect();
        let wanted: BTreeSet<_> = members.iter().map(|&server| id(server)).collect();
        let ask = || {
            block_on(self.observer(), || async {
                let client = connector()
                    .with_auth("digest", SUPER.as_bytes())
                    .connect(&connect)
                    .await?;
                // Asked again, since the answer may be lost if the leader leaves.
                if voters(&client).await? != wanted {
                    let update = EnsembleUpdate::Incremental {
                        joinings: lines.iter().map(String::as_str),
                        leavings: ids.iter().map(String::as_str),
                    };
                    client.update_ensemble(update, None).await?;
                }
                anyhow::Ok(())
            })?
        };
        let mut refusal = String::new();
        wait_for(START_BOUND, || {
            ask().map_err(|error| refusal = error.to_string()).ok()
        })
        .with_context(|| format!("the ensemble was not reconfigured: {refusal}"))?;
        for server in 0..self.len() {
            self.set_member(server, members.contains(&server));
        }
        self.wait_for_roles().map(drop)
    }
}

/// The id of a server in `zoo.cfg`; servers count from 0 here.
fn id(server: usize) -> usize {
    server + 1
}

/// The ids of the servers that vote, as the ensemble has agreed.
async fn voters(client: &Client) -> Result<BTreeSet<usize>, zookeeper_client::Error> {
    let (config, _) = client.get_config().await?;
    Ok(parse_voters(&String::from_utf8_lossy(&config)))
}

fn parse_voters(config: &str) -> BTreeSet<usize> {
    config
        .lines()
        .filter(|line| line.contains(":participant"))
        .filter_map(|line| line.strip_prefix("server.")?.split_once('=')?.0.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_participants_vote() {
        let config = "server.1=10.99.0.1:2888:3888:participant;10.99.0.1:2181\n\
                      server.12=10.99.0.4:2888:3888:observer;10.99.0.4:2181\n\
                      server.3=10.99.0.3:2888:3888:participant;10.99.0.3:2181\n\
                      version=100000000";
        assert_eq!(parse_voters(config), BTreeSet::from([1, 3]));
    }
}
