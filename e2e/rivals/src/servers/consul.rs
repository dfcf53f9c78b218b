//! One server of Consul, built from its module. Its licence (BUSL-1.1) allows that.

use std::process::Command;

use super::farm::{Breed, Farm, Node};
use crate::programs::consul;

struct Consul;

pub(super) fn start() -> anyhow::Result<Farm> {
    Farm::start(Box::new(Consul), 1)
}

impl Breed for Consul {
    fn port(&self) -> u16 {
        8500
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let node = &nodes[index];
        let file = node.directory.join("agent.hcl");
        let address = node.host.address();
        let settings = format!(
            "server = true\nbootstrap_expect = 1\nnode_name = \"c1\"\ndata_dir = \"{}\"\nbind_addr = \"{address}\"\n\
             client_addr = \"{address}\"\ndisable_update_check = true\nconnect {{ enabled = false }}\n\
             ports {{ serf_wan = -1, dns = -1, grpc = -1, grpc_tls = -1 }}\n",
            node.directory.join("data").display()
        );
        std::fs::write(&file, settings)?;
        let mut command = Command::new(consul()?.join("consul"));
        command.args(["agent", "-config-file"]).arg(&file);
        Ok(command)
    }

    fn serves(&self, farm: &Farm, index: usize) -> bool {
        let mut command = Command::new("curl");
        command.args(["--silent", "--fail", "--max-time", "1"]);
        command.arg(format!(
            "http://{}:8500/v1/status/leader",
            farm.nodes[index].host.address()
        ));
        farm.ask(command).is_some_and(|leader| leader.trim().len() > 2)
    }

    fn leader(&self, _: &Farm) -> Option<usize> {
        Some(0)
    }
}
