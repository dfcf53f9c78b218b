//! The servers, their hosts and their files.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::config::{self, Config, TlsFiles};
use crate::java::Release;
use crate::owner::{Owner, sweep_leftovers};
use crate::process::Process;
use crate::{Host, Network, Unsupported};

/// The port for clients on every server.
const CLIENT_PORT: u16 = 2181;
/// The port for clients that speak TLS, on servers that do.
const TLS_PORT: u16 = 2281;
/// The user with all rights on the servers, whatever the rights of a node: for the harness, if it has to see
/// nodes of other clients. (ZooKeeper's `DigestAuthenticationProvider`: the name, and the password's SHA-1.)
pub const SUPER: &str = "super:admin";
const SUPER_DIGEST: &str = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";

/// Running servers. Drop ends every process that was started on its hosts.
#[derive(Debug)]
pub struct Ensemble {
    // Fields are dropped in this order: processes, then their data.
    servers: Vec<Server>,
    config: Config,
    network: Network,
    /// The harness's own host in the network, which is never cut off.
    observer: Host,
    owner: Owner,
    directory: TempDir,
    /// Names of all hosts: [`Network::hosts_file`].
    names: PathBuf,
}

#[derive(Debug)]
struct Server {
    host: Host,
    directory: PathBuf,
    process: Mutex<Option<Process>>,
    release: Release,
    is_member: bool,
}

impl Server {
    /// A server that is down, on a host of its own.
    fn new(
        index: usize,
        network: &Network,
        directory: &Path,
        release: Release,
        is_member: bool,
    ) -> anyhow::Result<Self> {
        let id = index + 1;
        Ok(Self {
            host: network.host(format!("server {id}"))?,
            directory: directory.join(format!("server-{id}")),
            process: Mutex::new(None),
            release,
            is_member,
        })
    }
}

impl Ensemble {
    /// Makes the servers' hosts, and starts no server yet.
    pub(super) fn down(config: Config) -> anyhow::Result<Self> {
        let owner = Owner::new();
        let network = if config.loopback {
            Network::loopback(&owner, "the test asked for loopback addresses")?
        } else {
            Network::new(&owner)?
        };
        sweep_leftovers();
        ensure!(
            !config.settable_counter || config.release == Release::V3_9,
            "the server with a counter that can be set is built for ZooKeeper 3.9 only"
        );
        config.release.classpath()?;
        let directory = owner
            .directory()
            .context("cannot make a directory for the servers' data")?;
        let servers = (0..config.servers)
            .map(|index| Server::new(index, &network, directory.path(), config.release, true))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let observer = network.host("observer")?;
        let names = network.hosts_file(directory.path())?;
        Ok(Self {
            servers,
            config,
            network,
            observer,
            owner,
            directory,
            names,
        })
    }

    /// A host and a folder for one more server, which is no member yet.
    pub(super) fn make_server(&mut self) -> anyhow::Result<usize> {
        let index = self.servers.len();
        let release = self.config.release;
        let server = Server::new(index, &self.network, self.directory.path(), release, false)?;
        self.servers.push(server);
        Ok(index)
    }

    pub(super) fn set_member(&mut self, server: usize, is_member: bool) {
        self.servers[server].is_member = is_member;
    }

    pub(super) fn set_release(&mut self, server: usize, release: Release) {
        self.servers[server].release = release;
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The network between the servers and their clients.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The directory of this ensemble, for the files of a test. It is removed with the ensemble.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The file with the names of all hosts: [`Network::hosts_file`].
    pub fn names(&self) -> &Path {
        &self.names
    }

    /// The servers that vote, running or not: all but those that were removed.
    pub fn members(&self) -> Vec<usize> {
        (0..self.len())
            .filter(|&index| self.servers[index].is_member)
            .collect()
    }

    /// The connect string with all members: `10.99.0.1:2181,10.99.0.2:2181,…`.
    pub fn connect_string(&self) -> String {
        self.connect_string_of(&self.members())
    }

    pub fn connect_string_of(&self, servers: &[usize]) -> String {
        let addresses: Vec<_> = servers
            .iter()
            .map(|&index| self.address(index).to_string())
            .collect();
        addresses.join(",")
    }

    /// The address of one server for clients. Servers count from 0; their ids in `zoo.cfg` from 1.
    pub fn address(&self, server: usize) -> SocketAddrV4 {
        SocketAddrV4::new(self.servers[server].host.address(), CLIENT_PORT)
    }

    /// The connect string of one server for clients that speak TLS: `tcp+tls://10.99.0.1:2281`.
    pub fn tls_address(&self, server: usize) -> String {
        format!("tcp+tls://{}:{TLS_PORT}", self.servers[server].host.address())
    }

    /// The host of one server, for [`Ensemble::cut`].
    pub fn server(&self, server: usize) -> &Host {
        &self.servers[server].host
    }

    /// How many servers there are, running or not, members or not.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// True when there is no server: never.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub fn log(&self, server: usize) -> String {
        fs::read_to_string(self.servers[server].directory.join("log")).unwrap_or_default()
    }

    /// A new host for a client, which can be cut off from each server.
    pub fn client(&self, name: impl Into<String>) -> anyhow::Result<Host> {
        Ok(self.network.host(name)?)
    }

    /// The harness's own host: it always reaches every server.
    pub fn observer(&self) -> &Host {
        &self.observer
    }

    /// Drops every packet between two hosts until [`Ensemble::heal`].
    pub fn cut(&self, a: &Host, b: &Host) -> Result<(), Unsupported> {
        self.network.cut(a, b)
    }

    /// Reverts one [`Ensemble::cut`].
    pub fn heal(&self, a: &Host, b: &Host) -> Result<(), Unsupported> {
        self.network.heal(a, b)
    }

    /// The process id of a server; `None` while it is down.
    pub fn pid(&self, server: usize) -> Option<rustix::process::Pid> {
        self.process(server).as_ref().map(Process::pid)
    }

    /// Kills a server (SIGKILL) and leaves it down.
    pub fn kill(&self, server: usize) {
        self.process(server).take();
    }

    fn process(&self, server: usize) -> MutexGuard<'_, Option<Process>> {
        self.servers[server]
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory of a server: `zoo.cfg`, `data`, `log`.
    pub(super) fn directory_of(&self, server: usize) -> &Path {
        &self.servers[server].directory
    }

    /// The file `zoo.cfg` of a server.
    pub(super) fn configuration(&self, server: usize) -> PathBuf {
        self.servers[server].directory.join("zoo.cfg")
    }

    pub(super) fn write_configuration(&self, server: usize) -> anyhow::Result<()> {
        let data = self.directory_of(server).join("data");
        fs::create_dir_all(&data)?;
        let mut text = format!(
            "tickTime={}\nsyncLimit={}\ninitLimit={}\ndataDir={}\n\
             4lw.commands.whitelist=*\nadmin.enableServer=false\nmaxClientCnxns=0\n",
            self.config.tick.as_millis(),
            self.config.sync_limit,
            self.config.init_limit,
            data.display(),
        );
        if self.config.reconfigurable {
            // The address for clients is in the line of each server, so that a new one is known by that line.
            text.push_str("reconfigEnabled=true\n");
        } else {
            let address = self.address(server);
            writeln!(
                text,
                "clientPort={CLIENT_PORT}\nclientPortAddress={}",
                address.ip()
            )?;
        }
        let others = self.members().into_iter().filter(|&member| member != server);
        let mut voters: Vec<_> = others.chain([server]).collect();
        voters.sort_unstable();
        if voters.len() > 1 {
            for voter in voters {
                writeln!(text, "{}", self.server_line(voter))?;
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
        fs::write(self.configuration(server), text)?;
        Ok(())
    }

    /// The line of a server in `zoo.cfg` and in a reconfiguration: `server.1=10.99.0.1:2888:3888`.
    pub(super) fn server_line(&self, server: usize) -> String {
        let address = self.address(server);
        let ports = format!("server.{}={}:2888:3888", server + 1, address.ip());
        if self.config.reconfigurable {
            format!("{ports}:participant;{address}")
        } else {
            ports
        }
    }

    /// Starts a server that is down, without waiting for it.
    pub fn launch(&self, server: usize) -> anyhow::Result<()> {
        let Server {
            host,
            directory,
            release,
            ..
        } = &self.servers[server];
        let log = File::options()
            .create(true)
            .append(true)
            .open(directory.join("log"))?;
        // Without fsync, writes survive the death of a process; only the death of the machine would lose
        // them. Tests should not wait for a shared disk.
        let mut arguments = vec![
            "-Dzookeeper.forceSync=no".to_owned(),
            format!("-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"),
            Network::java_hosts_file(&self.names),
        ];
        arguments.extend_from_slice(&self.config.java_arguments);
        let main_class = if self.config.settable_counter {
            arguments.extend(config::counter_arguments(directory));
            config::COUNTER_SERVER
        } else {
            "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        };
        let mut command = release.command(main_class, 96, "info", &arguments)?;
        command
            .arg(self.configuration(server))
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
        // Also processes that a program under test has left on one of our hosts.
        self.owner.kill_all();
    }
}
