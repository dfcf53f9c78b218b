//! Three servers of etcd, in the version of the drivers' module.

use std::process::Command;

use super::farm::{Breed, Farm, Node};
use super::{Version, json_field, sum_of};
use crate::programs::go;

struct Etcd;

pub(super) fn start() -> anyhow::Result<Farm> {
    Farm::start(Box::new(Etcd), 3)
}

impl Breed for Etcd {
    fn port(&self) -> u16 {
        2379
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let peer = |node: &Node| format!("http://{}:2380", node.host.address());
        let members: Vec<_> = nodes
            .iter()
            .enumerate()
            .map(|(number, node)| format!("e{number}={}", peer(node)))
            .collect();
        let node = &nodes[index];
        let client = format!("http://{}:2379", node.host.address());
        let mut command = Command::new(go()?.join("server"));
        command
            .arg(format!("--name=e{index}"))
            .arg(format!("--data-dir={}", node.directory.join("data").display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={}", peer(node)))
            .arg(format!("--initial-advertise-peer-urls={}", peer(node)))
            .arg(format!("--initial-cluster={}", members.join(",")));
        Ok(command)
    }

    fn serves(&self, farm: &Farm, index: usize) -> bool {
        http(farm, index, "/health").is_some_and(|answer| answer.contains("\"health\":\"true\""))
    }

    fn versions(&self, farm: &Farm) -> Option<Vec<Version>> {
        Some(vec![(
            "etcd",
            json_field(&http(farm, 0, "/version")?, "etcdserver")?,
        )])
    }

    fn leader(&self, farm: &Farm) -> Option<usize> {
        (0..farm.nodes.len()).find(|&index| {
            http(farm, index, "/metrics")
                .is_some_and(|answer| answer.lines().any(|line| line == "etcd_server_is_leader 1"))
        })
    }

    /// What clients send on streams counts as well: watches and renewals.
    fn requests(&self, farm: &Farm) -> Option<f64> {
        let count = |index| sum_of(&http(farm, index, "/metrics")?, "grpc_server_msg_received_total");
        (0..farm.nodes.len()).map(count).sum()
    }
}

/// What a member answers over HTTP.
fn http(farm: &Farm, index: usize, path: &str) -> Option<String> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--max-time", "1"]);
    command.arg(format!("http://{}:2379{path}", farm.nodes[index].host.address()));
    farm.ask(command)
}
