//! Where rounds are played: running servers, and two machines for the contenders. Many rounds use one site, each with a
//! lock of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Host, Process};
use rustix::process::Signal;

use crate::servers::{Kind, PATIENCE, Servers, Version};

/// Running servers and two machines. Dropping it ends all of them.
pub struct Site {
    // Dropped before the servers, whose network they use.
    pub(crate) machines: [Machine; 2],
    pub(crate) servers: Box<dyn Servers>,
    pub(crate) kind: Kind,
    rounds: u32,
    /// What the servers have answered.
    versions: Vec<Version>,
}

/// A machine for one contender at a time.
pub(crate) struct Machine {
    pub host: Host,
    directory: PathBuf,
    /// What the lock's documentation wants on each machine, such as Consul's agent.
    agent: Option<Process>,
}

impl Site {
    /// Starts the servers.
    ///
    /// # Errors
    /// When a program is missing, or they do not serve in time.
    pub fn start(kind: Kind) -> anyhow::Result<Self> {
        let servers = kind.start()?;
        Ok(Self {
            machines: [Machine::new(&*servers, "one")?, Machine::new(&*servers, "two")?],
            servers,
            kind,
            rounds: 0,
            versions: Vec::new(),
        })
    }

    /// A number that no other round has had here, for the name of the lock: nothing of a former round is in its way.
    pub(crate) fn next_round(&mut self) -> u32 {
        self.rounds += 1;
        self.rounds
    }

    /// Which versions the servers are. They are asked once.
    ///
    /// # Errors
    /// When they do not tell it.
    pub(crate) fn server_versions(&mut self) -> anyhow::Result<&[Version]> {
        if self.versions.is_empty() {
            self.versions = versions_of(&*self.servers)?;
        }
        Ok(&self.versions)
    }

    /// Leaves nothing of a former round on the machines, and starts what each of them has to have.
    ///
    /// # Errors
    /// When it does not serve in time.
    pub(crate) fn make_ready(&mut self) -> anyhow::Result<()> {
        for machine in &mut self.machines {
            machine.make_ready(&*self.servers)?;
        }
        Ok(())
    }
}

/// Which versions servers are.
///
/// # Errors
/// When they do not tell it.
pub(crate) fn versions_of(servers: &dyn Servers) -> anyhow::Result<Vec<Version>> {
    wait_for(PATIENCE, || servers.versions()).context("the servers do not tell their version")
}

impl Machine {
    /// A machine beside these servers.
    ///
    /// # Errors
    /// When there are too many hosts.
    pub(crate) fn new(servers: &dyn Servers, name: &str) -> anyhow::Result<Self> {
        let directory = servers.directory().join(format!("machine-{name}"));
        std::fs::create_dir(&directory)?;
        Ok(Self {
            host: servers.network().host(name)?,
            directory,
            agent: None,
        })
    }

    /// See [`Site::make_ready`].
    ///
    /// # Errors
    /// When it does not serve in time.
    pub(crate) fn make_ready(&mut self, servers: &dyn Servers) -> anyhow::Result<()> {
        self.signal_contender(Signal::KILL)?;
        self.start_agent(servers)?;
        let serves = || servers.agent_serves(&self.host).then_some(());
        wait_for(PATIENCE, serves).with_context(|| format!("no agent on {}", self.host.name()))
    }

    /// Sends a signal to all processes but those that the machine itself has running: [`Host::signal_all`] takes all.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn signal_contender(&self, signal: Signal) -> std::io::Result<()> {
        let agent = self.agent.as_ref().map(Process::pid);
        for pid in self.host.processes()? {
            if Some(pid) != agent {
                // It may have ended since.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
        Ok(())
    }

    /// A folder for its files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn start_agent(&mut self, servers: &dyn Servers) -> anyhow::Result<()> {
        if self.agent.as_mut().is_some_and(Process::is_running) {
            return Ok(());
        }
        self.agent = match servers.agent(&self.host, &self.directory)? {
            None => None,
            Some(mut command) => {
                let log = std::fs::File::create(self.directory.join("agent.log"))?;
                command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
                Some(self.host.spawn("agent", command)?)
            }
        };
        Ok(())
    }
}
