//! What is done to the holder, its servers and its clock.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_testbed::{Host, faults};
use rustix::process::Signal;

use crate::contender::Contender;
use crate::servers::{Kind, Servers};
use crate::systems::{Driver, System};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The holder's machine crashes: driver and command get SIGKILL.
    HolderKilled,
    /// The holder's machine is stopped for longer than its lease, and goes on: what a virtual machine does, or a long
    /// pause of a garbage collector right before a write.
    HolderPaused,
    /// Only the library is stopped for longer than its lease: its driver, not the command.
    LibraryPaused,
    /// The holder is cut off from all servers.
    HolderCutOff,
    /// The server that the holder talks to is cut off from the other servers.
    ServerCutOff,
    /// The server that all writes depend on is killed. A single server is started again.
    LeaderKilled,
    /// It is stopped for longer than the lease, and goes on.
    LeaderPaused,
    /// The primary dies right after it has granted the lock, while its replica lags behind.
    Failover,
    /// All servers are killed and started again.
    AllRestarted,
    /// The wall clock of the holder jumps an hour ahead.
    ClockAhead,
    /// The wall clock of the waiting one jumps an hour ahead.
    WaiterAhead,
    /// The memory of the servers gets full.
    MemoryFull,
}

/// All of them, in the order of the page.
pub const FAULTS: &[Fault] = &[
    Fault::HolderKilled,
    Fault::HolderPaused,
    Fault::LibraryPaused,
    Fault::HolderCutOff,
    Fault::ServerCutOff,
    Fault::LeaderKilled,
    Fault::LeaderPaused,
    Fault::Failover,
    Fault::AllRestarted,
    Fault::ClockAhead,
    Fault::WaiterAhead,
    Fault::MemoryFull,
];

/// An hour.
const AHEAD: i64 = 3600;

/// A fault that has struck, and has to be undone.
pub(crate) struct Struck {
    undo: Undo,
}

enum Undo {
    Nothing,
    Resume(Host),
    ResumeDriver(rustix::process::Pid),
    Heal(Vec<(Host, Host)>),
    Launch(Vec<usize>),
}

impl Fault {
    /// Its name on the command line.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Why it cannot be done to a system.
    ///
    /// # Errors
    /// The reason.
    pub fn applies_to(self, system: &System) -> Result<(), &'static str> {
        let has_cluster = system.servers.has_cluster();
        match self {
            _ if matches!(system.driver, Driver::Crowd(_)) => Err("only its costs are of interest"),
            Self::ServerCutOff if !has_cluster || system.servers == Kind::Sentinel => {
                Err("its server has no others that it depends on")
            }
            Self::Failover if system.servers != Kind::Sentinel => {
                Err("its servers copy nothing behind the holder's back")
            }
            Self::LeaderKilled | Self::LeaderPaused if system.servers == Kind::FiveRedis => {
                Err("its servers are all alike")
            }
            Self::MemoryFull if !system.servers.evicts() => Err("its servers throw nothing away"),
            Self::ClockAhead | Self::WaiterAhead if system.driver == Driver::Go => {
                Err("Go asks the kernel for the time, where no library can shift it")
            }
            _ => Ok(()),
        }
    }

    /// After what time it is undone.
    pub(crate) fn length(self, lease: Duration) -> Duration {
        match self {
            Self::HolderKilled | Self::ClockAhead | Self::WaiterAhead | Self::MemoryFull => Duration::ZERO,
            Self::LeaderKilled | Self::AllRestarted => Duration::from_secs(3),
            // Sentinels notice after 3 s, and agree on a failover some seconds later.
            Self::Failover => Duration::from_secs(15),
            _ => lease * 2 + Duration::from_secs(2),
        }
    }

    /// Prepares it, before anybody has the lock.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn prepare(self, servers: &dyn Servers) -> anyhow::Result<()> {
        if self == Self::Failover {
            let hosts = servers.hosts();
            servers.network().cut(&hosts[0], &hosts[1])?;
        }
        Ok(())
    }

    /// Strikes.
    ///
    /// # Errors
    /// When it cannot be done.
    pub(crate) fn strike(
        self,
        servers: &mut dyn Servers,
        holder: &Contender,
        waiter: &Contender,
    ) -> anyhow::Result<Struck> {
        let undo = match self {
            Self::HolderKilled => {
                holder.host.signal_all(Signal::KILL)?;
                Undo::Nothing
            }
            Self::HolderPaused => {
                holder.host.signal_all(Signal::STOP)?;
                Undo::Resume(holder.host.clone())
            }
            Self::LibraryPaused => {
                let pid = holder.library().context("the library's process")?;
                faults::stop(pid)?;
                Undo::ResumeDriver(pid)
            }
            Self::HolderCutOff => {
                let pairs: Vec<_> = servers
                    .hosts()
                    .into_iter()
                    .map(|server| (server, holder.host.clone()))
                    .collect();
                cut(servers, pairs)?
            }
            Self::ServerCutOff => {
                let hosts = servers.hosts();
                let at = holder
                    .talks_to(&hosts)?
                    .context("the holder talks to no server")?;
                let others = hosts.iter().enumerate().filter(|(index, _)| *index != at);
                let pairs = others
                    .map(|(_, other)| (hosts[at].clone(), other.clone()))
                    .collect();
                cut(servers, pairs)?
            }
            Self::LeaderKilled | Self::Failover => {
                let leader = servers.leader().context("no server leads")?;
                servers.kill(leader);
                Undo::Launch(vec![leader])
            }
            Self::LeaderPaused => {
                let leader = servers.leader().context("no server leads")?;
                let host = servers.hosts().swap_remove(leader);
                host.signal_all(Signal::STOP)?;
                Undo::Resume(host)
            }
            Self::AllRestarted => {
                let all: Vec<_> = (0..servers.hosts().len()).collect();
                for &server in &all {
                    servers.kill(server);
                }
                Undo::Launch(all)
            }
            Self::ClockAhead => {
                holder.shift_clock(AHEAD)?;
                Undo::Nothing
            }
            Self::WaiterAhead => {
                waiter.shift_clock(AHEAD)?;
                Undo::Nothing
            }
            Self::MemoryFull => {
                servers.fill_memory()?;
                Undo::Nothing
            }
        };
        Ok(Struck { undo })
    }
}

impl Struck {
    /// Undoes it.
    ///
    /// # Errors
    /// When the kernel refuses, or a server cannot be started.
    pub(crate) fn undo(self, servers: &mut dyn Servers) -> anyhow::Result<()> {
        match self.undo {
            Undo::Nothing => {}
            Undo::Resume(host) => host.signal_all(Signal::CONT)?,
            // It may have ended meanwhile.
            Undo::ResumeDriver(pid) => drop(faults::resume(pid)),
            Undo::Heal(pairs) => {
                for (one, other) in pairs {
                    servers.network().heal(&one, &other)?;
                }
            }
            Undo::Launch(all) => {
                for server in all {
                    servers.launch(server)?;
                }
            }
        }
        Ok(())
    }
}

fn cut(servers: &dyn Servers, pairs: Vec<(Host, Host)>) -> anyhow::Result<Undo> {
    for (one, other) in &pairs {
        servers.network().cut(one, other)?;
    }
    Ok(Undo::Heal(pairs))
}
