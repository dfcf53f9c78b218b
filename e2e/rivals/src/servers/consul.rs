//! Three servers of Consul, and its agent on each machine that uses the lock, as
//! <https://developer.hashicorp.com/consul/docs/architecture> wants them: programs talk to the agent of their own machine.
//! Built from its module. Its licence (BUSL-1.1) allows that.

use std::path::Path;
use std::process::Command;

use lockkeeper_testbed::Host;

use super::farm::{Breed, Farm, Node, ask_on};
use super::{Version, json_field};
use crate::programs::consul;

const SERVERS: usize = 3;

struct Consul;

pub(super) fn start() -> anyhow::Result<Farm> {
    Farm::start(Box::new(Consul), SERVERS)
}

impl Breed for Consul {
    fn port(&self) -> u16 {
        8500
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let node = &nodes[index];
        let address = node.host.address();
        let own = format!(
            "server = true\nbootstrap_expect = {SERVERS}\nnode_name = \"server-{}\"\nclient_addr = \"{address}\"\n",
            index + 1
        );
        agent(nodes, &node.host, &node.directory, &own)
    }

    /// Of the agent of the contender's own machine.
    fn addresses(&self, _: &[Node]) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    fn agent(&self, nodes: &[Node], host: &Host, directory: &Path) -> anyhow::Result<Option<Command>> {
        let own = format!(
            "server = false\nnode_name = \"{}\"\nclient_addr = \"127.0.0.1\"\n",
            host.name()
        );
        Ok(Some(agent(nodes, host, directory, &own)?))
    }

    /// Its servers know it, and have heard from it.
    fn agent_serves(&self, host: &Host) -> bool {
        let command = get(&format!(
            "127.0.0.1:{}/v1/health/node/{}",
            self.port(),
            host.name()
        ));
        ask_on(host, command).is_some_and(|checks| {
            let checks: String = checks.split_whitespace().collect();
            checks.contains("\"CheckID\":\"serfHealth\"") && checks.contains("\"Status\":\"passing\"")
        })
    }

    fn serves(&self, farm: &Farm, index: usize) -> bool {
        leader_of(farm, index).is_some()
    }

    fn versions(&self, farm: &Farm) -> Option<Vec<Version>> {
        let told = farm.ask(get(&format!(
            "{}:8500/v1/agent/self",
            farm.nodes[0].host.address()
        )))?;
        Some(vec![("Consul", json_field(&told, "Config.Version")?)])
    }

    fn leader(&self, farm: &Farm) -> Option<usize> {
        (0..farm.nodes.len())
            .find_map(|index| leader_of(farm, index))
            .and_then(|leader| {
                let addresses = farm.nodes.iter().map(|node| node.host.address().to_string());
                addresses.into_iter().position(|address| address == leader)
            })
    }
}

/// An agent, which is a server or not, with these settings of its own.
fn agent(nodes: &[Node], host: &Host, directory: &Path, own: &str) -> anyhow::Result<Command> {
    let servers: Vec<_> = nodes
        .iter()
        .map(|node| format!("\"{}\"", node.host.address()))
        .collect();
    let settings = format!(
        "{own}data_dir = \"{}\"\nbind_addr = \"{}\"\nretry_join = [{}]\nretry_interval = \"1s\"\n\
         disable_update_check = true\nconnect {{ enabled = false }}\n\
         ports {{ serf_wan = -1, dns = -1, grpc = -1, grpc_tls = -1 }}\n",
        directory.join("data").display(),
        host.address(),
        servers.join(", ")
    );
    let file = directory.join("agent.hcl");
    std::fs::write(&file, settings)?;
    let mut command = Command::new(consul()?.join("consul"));
    command.args(["agent", "-config-file"]).arg(&file);
    Ok(command)
}

/// The address of the leader, as a server knows it.
fn leader_of(farm: &Farm, index: usize) -> Option<String> {
    let told = farm.ask(get(&format!(
        "{}:8500/v1/status/leader",
        farm.nodes[index].host.address()
    )))?;
    let (address, _) = told.trim().trim_matches('"').rsplit_once(':')?;
    Some(address.to_owned())
}

fn get(address: &str) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--fail", "--max-time", "1"]);
    command.arg(format!("http://{address}"));
    command
}
