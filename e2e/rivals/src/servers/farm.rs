//! Servers that need no more than a command each.

use std::fs::File;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper_testbed::owner::{Owner, sweep_leftovers};
use lockkeeper_testbed::{Host, Network, Process};
use tempfile::TempDir;

use super::{Servers, Version};
use crate::programs::named;

/// How long a server may take to answer the question whether it serves.
const ANSWER: Duration = Duration::from_secs(2);

/// What differs between the servers of the field.
pub(super) trait Breed {
    /// The port for clients.
    fn port(&self) -> u16;

    /// The command of a server. Its directory exists, and keeps what is in there over a restart.
    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command>;

    fn serves(&self, farm: &Farm, index: usize) -> bool;

    /// The server that writes depend on.
    fn leader(&self, farm: &Farm) -> Option<usize>;

    /// `--servers` of the drivers.
    fn addresses(&self, nodes: &[Node]) -> String {
        let port = self.port();
        let all: Vec<_> = nodes
            .iter()
            .map(|node| format!("{}:{port}", node.host.address()))
            .collect();
        all.join(",")
    }

    /// See [`Servers::versions`].
    fn versions(&self, farm: &Farm) -> Option<Vec<Version>>;

    /// Further options of the drivers.
    fn options(&self, _: &[Node]) -> Vec<String> {
        Vec::new()
    }

    /// See [`Servers::requests`].
    fn requests(&self, _: &Farm) -> Option<f64> {
        None
    }

    /// See [`Servers::agent`].
    fn agent(&self, _: &[Node], _: &Host, _: &Path) -> anyhow::Result<Option<Command>> {
        Ok(None)
    }

    /// See [`Servers::agent_serves`].
    fn agent_serves(&self, _: &Host) -> bool {
        true
    }

    /// See [`Servers::empty_memory`].
    fn empty_memory(&self, _: &Farm) -> anyhow::Result<()> {
        anyhow::bail!("these servers throw nothing away")
    }

    /// See [`Servers::fill_memory`].
    fn fill_memory(&self, _: &Farm) -> anyhow::Result<()> {
        anyhow::bail!("these servers throw nothing away")
    }
}

/// A server and its host.
pub(super) struct Node {
    pub host: Host,
    pub directory: PathBuf,
    process: Option<Process>,
}

/// Servers of one breed.
pub(super) struct Farm {
    // Dropped in this order: processes before their data.
    pub nodes: Vec<Node>,
    breed: Box<dyn Breed>,
    network: Network,
    /// The harness's own host, which is never cut off.
    observer: Host,
    directory: TempDir,
    names: PathBuf,
}

impl Farm {
    pub(crate) fn start(breed: Box<dyn Breed>, count: usize) -> anyhow::Result<Self> {
        let owner = Owner::new();
        let network = Network::new(&owner)?;
        network.can_cut()?;
        sweep_leftovers();
        let directory = owner.directory()?;
        let names = network.hosts_file(directory.path())?;
        let mut nodes = Vec::new();
        for index in 0..count {
            let own = directory.path().join(format!("server-{}", index + 1));
            std::fs::create_dir(&own)?;
            nodes.push(Node {
                host: network.host(format!("server {}", index + 1))?,
                directory: own,
                process: None,
            });
        }
        let observer = network.host("observer")?;
        let mut farm = Self {
            nodes,
            breed,
            network,
            observer,
            directory,
            names,
        };
        for index in 0..count {
            farm.launch(index)?;
        }
        Ok(farm)
    }

    /// What a client program prints that runs on the harness's own host; `None` if it fails.
    pub(crate) fn ask(&self, command: Command) -> Option<String> {
        ask_on(&self.observer, command)
    }

    /// Whether a server accepts connections at its port.
    pub(crate) fn accepts(&self, index: usize) -> bool {
        let address = SocketAddrV4::new(self.nodes[index].host.address(), self.breed.port());
        self.observer.connect(address, ANSWER).is_ok()
    }

    /// The harness's own host.
    pub(crate) fn observer(&self) -> &Host {
        &self.observer
    }
}

/// What a client program prints that runs on a host; `None` if it fails.
pub(super) fn ask_on(host: &Host, mut command: Command) -> Option<String> {
    Process::piped(&mut command);
    let process = host.spawn("client", command).ok()?;
    let output = process.output_within(ANSWER).ok()??;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Servers for Farm {
    fn network(&self) -> &Network {
        &self.network
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn names(&self) -> &Path {
        &self.names
    }

    fn addresses(&self) -> String {
        self.breed.addresses(&self.nodes)
    }

    fn agent(&self, host: &Host, directory: &Path) -> anyhow::Result<Option<Command>> {
        self.breed.agent(&self.nodes, host, directory)
    }

    fn agent_serves(&self, host: &Host) -> bool {
        self.breed.agent_serves(host)
    }

    fn options(&self) -> Vec<String> {
        self.breed.options(&self.nodes)
    }

    fn hosts(&self) -> Vec<Host> {
        self.nodes.iter().map(|node| node.host.clone()).collect()
    }

    fn leader(&self) -> Option<usize> {
        self.breed.leader(self)
    }

    fn kill(&mut self, server: usize) {
        self.nodes[server].process = None;
        // Servers that have children, such as PostgreSQL, leave them behind.
        let _ = self.nodes[server].host.signal_all(rustix::process::Signal::KILL);
    }

    fn launch(&mut self, server: usize) -> anyhow::Result<()> {
        let mut command = self.breed.command(&self.nodes, server)?;
        let node = &mut self.nodes[server];
        let log = File::options()
            .create(true)
            .append(true)
            .open(node.directory.join("log"))?;
        named(&mut command, &self.names)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        node.process = Some(node.host.spawn(node.host.name(), command)?);
        Ok(())
    }

    fn all_serve(&self) -> bool {
        (0..self.nodes.len()).all(|index| self.breed.serves(self, index))
    }

    fn versions(&self) -> Option<Vec<Version>> {
        self.breed.versions(self)
    }

    fn requests(&self) -> Option<f64> {
        self.breed.requests(self)
    }

    fn empty_memory(&mut self) -> anyhow::Result<()> {
        self.breed.empty_memory(self)
    }

    fn fill_memory(&mut self) -> anyhow::Result<()> {
        self.breed.fill_memory(self)
    }
}
