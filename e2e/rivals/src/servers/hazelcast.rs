//! Three members of Hazelcast with its CP subsystem, each in a Java machine of its own.

use std::process::Command;

use super::Version;
use super::farm::{Breed, Farm, Node};
use crate::programs::{Size, java};

/// After this time without a heartbeat a session of the CP subsystem ends, and with it the lock of its client. Its
/// default is 300 s, of which a round would have to wait for each time.
const SESSION: &str = "4";

struct Hazelcast;

pub(super) fn start() -> anyhow::Result<Farm> {
    Farm::start(Box::new(Hazelcast), 3)
}

impl Breed for Hazelcast {
    fn port(&self) -> u16 {
        5701
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let mut command = java("lockkeeper.rivals.HazelcastMember", Size::Server)?;
        command
            .args(["--address", &nodes[index].host.address().to_string()])
            .args(["--port", &self.port().to_string()])
            .args(["--members", &self.addresses(nodes)])
            .args(["--session-ttl-s", SESSION, "--session-heartbeat-s", "1"]);
        Ok(command)
    }

    fn serves(&self, farm: &Farm, index: usize) -> bool {
        let log = std::fs::read_to_string(farm.nodes[index].directory.join("log")).unwrap_or_default();
        farm.accepts(index) && log.lines().any(|line| line == "ready")
    }

    fn versions(&self, farm: &Farm) -> Option<Vec<Version>> {
        let log = std::fs::read_to_string(farm.nodes[0].directory.join("log")).ok()?;
        let version = log.lines().find_map(|line| line.strip_prefix("version "))?;
        Some(vec![("Hazelcast", version.to_owned())])
    }

    /// Of the group of the lock, as the members have said last. One that was paused or killed may say so still; no other
    /// one does before it leads.
    fn leader(&self, farm: &Farm) -> Option<usize> {
        let leads = |index: &usize| {
            let log = std::fs::read_to_string(farm.nodes[*index].directory.join("log")).unwrap_or_default();
            let mut words = log.lines().filter(|line| ["leads", "follows"].contains(line));
            words.next_back() == Some("leads")
        };
        (0..farm.nodes.len()).rev().find(leads)
    }
}
