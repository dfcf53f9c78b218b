//! Real ZooKeeper servers, each a process on a [`Host`] of its own.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tempfile::TempDir;

use crate::java;
use crate::network::{Host, Network, Unsupported};
use crate::owner::{Owner, sweep_leftovers};
use crate::process::{Process, wait_for};

mod client;
mod deletions;
mod shared;
mod words;

pub use client::{block_on, connector};
pub use deletions::{DeletionWatch, NodeLife};
pub use shared::shared;
pub use words::Mode;

/// The port of clients on every server.
pub const CLIENT_PORT: u16 = 2181;
/// The port of clients that speak TLS, on servers that do.
pub const TLS_PORT: u16 = 2281;
/// Who may do everything on the servers, whatever the rights of a node: the harness, where it has to see
/// nodes of others. (ZooKeeper's `DigestAuthenticationProvider`: the name, and the password's SHA-1.)
pub const SUPER: &str = "super:admin";
const SUPER_DIGEST: &str = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";
/// A server on a small machine with others starting beside it takes a second or two.
const START_BOUND: Duration = Duration::from_secs(60);

/// What the servers need to speak TLS. They read the files at their first TLS connection, so these
/// may be made when the servers' addresses are known.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate and key (PEM) of all servers.
    pub key_store: PathBuf,
    /// Certificates (PEM) of the authorities that clients' certificates must come from.
    pub trust_store: PathBuf,
}

/// What an [`Ensemble`] is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many servers; one of them is a standalone server without a quorum.
    pub servers: usize,
    /// ZooKeeper's `tickTime`, in whole milliseconds. Session timeouts are 2 to 20 of them.
    pub tick: Duration,
    /// Ticks after which a leader and a follower that do not hear from one another give up.
    pub sync_limit: u32,
    /// Ticks that a follower may take to copy the leader's data at first.
    pub init_limit: u32,
    /// Further lines of `zoo.cfg`.
    pub extra: Vec<(String, String)>,
    /// Further arguments of the Java machine, such as `-Dzookeeper.…`.
    pub java_arguments: Vec<String>,
    /// Also speak TLS, and demand a certificate from every client.
    pub tls: Option<TlsFiles>,
    /// Use loopback addresses even where namespaces are allowed: nothing can be cut then.
    pub loopback: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            servers: 3,
            tick: Duration::from_secs(1),
            sync_limit: 10,
            init_limit: 10,
            extra: Vec::new(),
            java_arguments: Vec::new(),
            tls: None,
            loopback: false,
        }
    }
}

/// Running servers. Drop ends everything that was started on its hosts.
#[derive(Debug)]
pub struct Ensemble {
    // Fields are dropped in this order: processes, then their data.
    servers: Vec<Server>,
    config: Config,
    network: Network,
    /// The harness's own place in the network, never cut off.
    observer: Host,
    owner: Owner,
    directory: TempDir,
}

/// One server of an [`Ensemble`].
#[derive(Debug)]
struct Server {
    host: Host,
    directory: PathBuf,
    process: Mutex<Option<Process>>,
}

impl Ensemble {
    /// Starts the servers and waits until they serve.
    ///
    /// Ends first what a killed harness has left. May replace this process: see [`Network::new`].
    pub fn start(config: Config) -> anyhow::Result<Self> {
        let owner = Owner::new();
        let network = if config.loopback {
            Network::loopback(&owner, "the test asked for loopback addresses")?
        } else {
            Network::new(&owner)?
        };
        sweep_leftovers();
        java::classpath()?;
        let directory = owner
            .directory()
            .context("cannot make a directory for the servers' data")?;
        let servers = (1..=config.servers)
            .map(|id| {
                let host = network.host(format!("server {id}"))?;
                let directory = directory.path().join(format!("server-{id}"));
                Ok(Server {
                    host,
                    directory,
                    process: Mutex::new(None),
                })
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let observer = network.host("observer")?;
        let ensemble = Self {
            servers,
            config,
            network,
            observer,
            owner,
            directory,
        };
        for index in 0..ensemble.servers.len() {
            ensemble.write_configuration(index)?;
            ensemble.launch(index)?;
        }
        ensemble.wait_ready()?;
        Ok(ensemble)
    }

    /// What it was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The network between the servers and their clients.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The directory of this ensemble, for the files of a test: it is removed with it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// All servers, as clients want them: `10.99.0.1:2181,10.99.0.2:2181,…`.
    pub fn connect_string(&self) -> String {
        let addresses: Vec<_> = (0..self.servers.len())
            .map(|index| self.address(index).to_string())
            .collect();
        addresses.join(",")
    }

    /// Where clients reach one server. Servers count from 0; their ids in `zoo.cfg` from 1.
    pub fn address(&self, server: usize) -> SocketAddrV4 {
        SocketAddrV4::new(self.servers[server].host.address(), CLIENT_PORT)
    }

    /// One server as clients want it that speak TLS: `tcp+tls://10.99.0.1:2281`.
    pub fn tls_address(&self, server: usize) -> String {
        format!("tcp+tls://{}:{TLS_PORT}", self.servers[server].host.address())
    }

    /// The host of one server, for [`Ensemble::cut`].
    pub fn server(&self, server: usize) -> &Host {
        &self.servers[server].host
    }

    /// How many servers there are, running or not.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// True when there is no server: never.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// What one server has written to its log.
    pub fn log(&self, server: usize) -> String {
        fs::read_to_string(self.servers[server].directory.join("log")).unwrap_or_default()
    }

    /// A new host for a client, which can be cut off from each server.
    pub fn client(&self, name: impl Into<String>) -> anyhow::Result<Host> {
        Ok(self.network.host(name)?)
    }

    /// The harness's own host: it reaches every server, whatever is cut.
    pub fn observer(&self) -> &Host {
        &self.observer
    }

    /// Loses every packet between two hosts until [`Ensemble::heal`].
    pub fn cut(&self, a: &Host, b: &Host) -> Result<(), Unsupported> {
        self.network.cut(a, b)
    }

    /// Takes one [`Ensemble::cut`] back.
    pub fn heal(&self, a: &Host, b: &Host) -> Result<(), Unsupported> {
        self.network.heal(a, b)
    }

    /// The process id of a server, or nothing while it is down.
    pub fn pid(&self, server: usize) -> Option<rustix::process::Pid> {
        self.process(server).as_ref().map(Process::pid)
    }

    /// Kills a server (SIGKILL) and leaves it down.
    pub fn kill(&self, server: usize) {
        self.process(server).take();
    }

    /// Starts a server again, after killing it if it runs, and waits until it serves clients.
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

    /// As [`Ensemble::restart`], with further lines in its `zoo.cfg` from now on.
    pub fn restart_with(&self, server: usize, lines: &[(&str, &str)]) -> anyhow::Result<()> {
        let path = self.servers[server].directory.join("zoo.cfg");
        let mut text = fs::read_to_string(&path)?;
        for (key, value) in lines {
            writeln!(text, "{key}={value}")?;
        }
        fs::write(path, text)?;
        self.restart(server)
    }

    /// Restarts all servers, one after the other, the leader last, as an operator does.
    pub fn rolling_restart(&self) -> anyhow::Result<()> {
        let leader = self.leader();
        let mut order: Vec<_> = (0..self.servers.len())
            .filter(|&index| Some(index) != leader)
            .collect();
        order.extend(leader);
        for index in order {
            self.restart(index)?;
            self.wait_for_quorum()?;
        }
        Ok(())
    }

    /// Waits until every server that has been started serves, and one leads.
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        let all = || {
            (0..self.servers.len())
                .filter(|&index| self.pid(index).is_some())
                .all(|i| self.mode(i).serves())
        };
        wait_for(START_BOUND, || all().then_some(())).ok_or_else(|| {
            let logs: String = (0..self.servers.len())
                .map(|index| format!("--- {}:\n{}\n", self.server(index).name(), self.log_end(index)))
                .collect();
            anyhow!("the servers did not all serve within {START_BOUND:?}\n{logs}")
        })?;
        self.wait_for_quorum()
    }

    /// Waits until a leader has enough followers to commit.
    pub fn wait_for_quorum(&self) -> anyhow::Result<()> {
        let needed = self.servers.len() / 2;
        let formed = || {
            let leader = self.leader()?;
            (needed == 0 || self.synced_followers(leader)? >= needed).then_some(())
        };
        wait_for(START_BOUND, formed).ok_or_else(|| anyhow!("no quorum within {START_BOUND:?}"))
    }

    fn process(&self, server: usize) -> MutexGuard<'_, Option<Process>> {
        self.servers[server]
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn log_end(&self, server: usize) -> String {
        let log = self.log(server);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn write_configuration(&self, server: usize) -> anyhow::Result<()> {
        let Server { directory, .. } = &self.servers[server];
        let data = directory.join("data");
        fs::create_dir_all(&data)?;
        let mut text = format!(
            "tickTime={}\nsyncLimit={}\ninitLimit={}\ndataDir={}\nclientPort={CLIENT_PORT}\nclientPortAddress={}\n\
             4lw.commands.whitelist=*\nadmin.enableServer=false\nmaxClientCnxns=0\n",
            self.config.tick.as_millis(),
            self.config.sync_limit,
            self.config.init_limit,
            data.display(),
            self.servers[server].host.address(),
        );
        if self.servers.len() > 1 {
            for (index, server) in self.servers.iter().enumerate() {
                writeln!(text, "server.{}={}:2888:3888", index + 1, server.host.address())?;
            }
            fs::write(data.join("myid"), (server + 1).to_string())?;
        }
        if let Some(TlsFiles {
            key_store,
            trust_store,
        }) = &self.config.tls
        {
            write!(
                text,
                "secureClientPort={TLS_PORT}\nsecureClientPortAddress={}\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.trustStore.location={}\nssl.clientAuth=need\n",
                self.servers[server].host.address(),
                key_store.display(),
                trust_store.display(),
            )?;
        }
        for (key, value) in &self.config.extra {
            writeln!(text, "{key}={value}")?;
        }
        fs::write(directory.join("zoo.cfg"), text)?;
        Ok(())
    }

    /// Starts a server that is down, and does not wait for it.
    pub fn launch(&self, server: usize) -> anyhow::Result<()> {
        let Server { host, directory, .. } = &self.servers[server];
        let log = File::options()
            .create(true)
            .append(true)
            .open(directory.join("log"))?;
        // What is written survives the death of a process without fsync; only a machine's would lose
        // it, and tests should not wait for a shared disk.
        let mut arguments = vec![
            "-Dzookeeper.forceSync=no".to_owned(),
            format!("-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"),
        ];
        arguments.extend_from_slice(&self.config.java_arguments);
        let main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
        let mut command = java::command(main_class, 96, "info", &arguments)?;
        command
            .arg(directory.join("zoo.cfg"))
            .stdout(Stdio::null())
            .stderr(log);
        *self.process(server) = Some(host.spawn(host.name(), command)?);
        Ok(())
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        for index in 0..self.servers.len() {
            self.kill(index);
        }
        // Also what a program under test has left behind on one of our hosts.
        self.owner.kill_all();
    }
}
