//! What is done to the holder, its servers and its clock.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Host, faults};
use rustix::process::Signal;

use crate::contender::Contender;
use crate::servers::{Kind, Servers};
use crate::site::Site;
use crate::systems::{Driver, System};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing is done: what a lock does by itself.
    None,
    /// Driver and command get SIGKILL. The kernel closes their connections.
    HolderKilled,
    /// The holder's machine crashes: nobody hears from it any more, not even that its connections have ended.
    HolderCrashed,
    /// The holder's machine is stopped for longer than its lease, and goes on: what a virtual machine does, or a long
    /// pause of a garbage collector right before a write.
    HolderPaused,
    /// Only the process with the library is stopped for longer than its lease, not the command.
    LibraryPaused,
    /// The holder is cut off from all servers, and from the other contender.
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
    Fault::None,
    Fault::HolderKilled,
    Fault::HolderCrashed,
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

/// How long Sentinels may take for a failover, beyond the time of the fault.
const FAILOVER: Duration = Duration::from_secs(30);

/// How much longer than a lease a fault lasts. The next one has the time to begin and to run.
const BEYOND_A_LEASE: Duration = Duration::from_secs(6);

/// A fault that has struck, and has to be undone.
pub(crate) struct Struck {
    undo: Undo,
    /// What lasts until the end of the round.
    at_the_end: Vec<(Host, Host)>,
}

enum Undo {
    Nothing,
    Resume(Host),
    ResumeDriver(rustix::process::Pid),
    Heal(Vec<(Host, Host)>),
    Launch(Vec<usize>),
    /// The former primary comes back, and reaches the other servers again.
    LaunchBehind(usize),
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
            Self::ServerCutOff if matches!(system.servers, Kind::Etcd | Kind::Hazelcast) => {
                Err("its client has a connection to each server")
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

    /// After what time it is undone, for a lock of which a silent holder is rid after this time at the latest.
    pub(crate) fn length(self, lease: Duration) -> Duration {
        match self {
            Self::HolderKilled
            | Self::HolderCrashed
            | Self::ClockAhead
            | Self::WaiterAhead
            | Self::MemoryFull => Duration::ZERO,
            // Clearly shorter than the lease: what is lost then is not lost by time.
            Self::LeaderKilled | Self::AllRestarted => Duration::from_secs(1),
            // Sentinels notice after 3 s, and agree on a failover some seconds later.
            Self::Failover => Duration::from_secs(15),
            _ => lease + BEYOND_A_LEASE,
        }
    }

    /// Whether servers come back without what they had been told.
    pub fn needs_new_servers(self, kind: Kind) -> bool {
        kind.loses_what_was_killed() && matches!(self, Self::LeaderKilled | Self::AllRestarted)
    }

    /// Whether servers suffer from it only if they are set so.
    pub(crate) fn is_of_a_setting(self, system: &System) -> bool {
        self == Self::MemoryFull && !system.servers.throws_away_by_default()
    }

    /// Whether the program itself stands still meanwhile, too.
    pub(crate) fn stops_the_holders_machine(self) -> bool {
        self == Self::HolderPaused
    }

    /// Whether it has to be over when the servers serve again, and not before.
    pub(crate) fn lasts_until_servers_serve(self) -> bool {
        matches!(self, Self::LeaderKilled | Self::AllRestarted)
    }

    /// Whether it would strike what it is meant for. A server that leads, or that both contenders talk to, cuts off more
    /// than the holder's word.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn suits(self, site: &Site, contenders: &[Contender], holder: usize) -> anyhow::Result<bool> {
        if self != Self::ServerCutOff || site.kind != Kind::ZooKeeper {
            return Ok(true);
        }
        let hosts = site.servers.hosts();
        let [at, of_waiter] = [holder, 1 - holder].map(|which| contenders[which].talks_to(&hosts));
        let (at, of_waiter) = (at?, of_waiter?);
        Ok(at.is_some() && of_waiter.is_some() && at != of_waiter && at != site.servers.leader())
    }

    /// Prepares it, before anybody has the lock.
    ///
    /// # Errors
    /// When it cannot be done.
    pub(crate) fn prepare(self, servers: &mut dyn Servers) -> anyhow::Result<()> {
        match self {
            Self::Failover => {
                let (primary, replica) = pair(servers)?;
                servers.network().cut(&primary, &replica)?;
            }
            // It is full since the round before.
            Self::MemoryFull => servers.empty_memory()?,
            _ => {}
        }
        Ok(())
    }

    /// Strikes the one of both that holds.
    ///
    /// # Errors
    /// When it cannot be done.
    pub(crate) fn strike(
        self,
        site: &mut Site,
        contenders: &[Contender],
        holder: usize,
    ) -> anyhow::Result<Struck> {
        let servers = &mut *site.servers;
        let (machine, other) = (&site.machines[holder], &site.machines[1 - holder]);
        let cut_off = |servers: &dyn Servers| {
            let mut all = servers.hosts();
            all.push(other.host.clone());
            let pairs = all.into_iter().map(|one| (one, machine.host.clone()));
            cut(servers, pairs.collect())
        };
        let mut at_the_end = Vec::new();
        let undo = match self {
            Self::None => Undo::Nothing,
            Self::HolderKilled => {
                machine.signal_contender(Signal::KILL)?;
                Undo::Nothing
            }
            Self::HolderCrashed => {
                at_the_end = cut_off(servers)?;
                machine.host.signal_all(Signal::KILL)?;
                Undo::Nothing
            }
            Self::HolderPaused => {
                machine.host.signal_all(Signal::STOP)?;
                Undo::Resume(machine.host.clone())
            }
            Self::LibraryPaused => {
                let pid = contenders[holder].library().context("the library's process")?;
                faults::stop(pid)?;
                Undo::ResumeDriver(pid)
            }
            Self::HolderCutOff => Undo::Heal(cut_off(servers)?),
            Self::ServerCutOff => {
                let hosts = servers.hosts();
                let at = contenders[holder]
                    .talks_to(&hosts)?
                    .context("the holder talks to no server")?;
                let others = hosts.iter().enumerate().filter(|(index, _)| *index != at);
                let pairs = others.map(|(_, other)| (hosts[at].clone(), other.clone()));
                Undo::Heal(cut(servers, pairs.collect())?)
            }
            Self::LeaderKilled => {
                let leader = servers.leader().context("no server leads")?;
                servers.kill(leader);
                Undo::Launch(vec![leader])
            }
            Self::Failover => {
                let primary = servers.leader().context("no server leads")?;
                servers.kill(primary);
                Undo::LaunchBehind(primary)
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
                contenders[holder].shift_clock(AHEAD)?;
                Undo::Nothing
            }
            Self::WaiterAhead => {
                contenders[1 - holder].shift_clock(AHEAD)?;
                Undo::Nothing
            }
            Self::MemoryFull => {
                servers.fill_memory()?;
                Undo::Nothing
            }
        };
        Ok(Struck { undo, at_the_end })
    }
}

impl Struck {
    /// Undoes it, but for what lasts until the end of the round.
    ///
    /// # Errors
    /// When the kernel refuses, a server cannot be started, or what was to follow from the fault did not.
    pub(crate) fn undo(&mut self, servers: &mut dyn Servers) -> anyhow::Result<()> {
        match std::mem::replace(&mut self.undo, Undo::Nothing) {
            Undo::Nothing => {}
            Undo::Resume(host) => resume_all(&host)?,
            // It may have ended meanwhile.
            Undo::ResumeDriver(pid) => drop(faults::resume(pid)),
            Undo::Heal(pairs) => heal(servers, pairs)?,
            Undo::Launch(all) => {
                for server in all {
                    servers.launch(server)?;
                }
            }
            Undo::LaunchBehind(former) => {
                let leads = || servers.leader().filter(|leader| *leader != former);
                let leader = wait_for(FAILOVER, leads).context("the replica did not take over")?;
                let hosts = servers.hosts();
                heal(servers, vec![(hosts[former].clone(), hosts[leader].clone())])?;
                servers.launch(former)?;
            }
        }
        Ok(())
    }

    /// Undoes the rest, when nobody competes any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn end(self, servers: &dyn Servers) -> anyhow::Result<()> {
        heal(servers, self.at_the_end)
    }
}

/// In any order: on a machine that wakes, none of them is the first.
fn resume_all(host: &Host) -> std::io::Result<()> {
    let mut processes = host.processes()?;
    fastrand::shuffle(&mut processes);
    for pid in processes {
        // It may have ended since.
        let _ = rustix::process::kill_process(pid, Signal::CONT);
    }
    Ok(())
}

/// The primary and its only replica.
fn pair(servers: &dyn Servers) -> anyhow::Result<(Host, Host)> {
    let primary = servers.leader().context("no server leads")?;
    let hosts = servers.hosts();
    Ok((hosts[primary].clone(), hosts[1 - primary].clone()))
}

fn cut(servers: &dyn Servers, pairs: Vec<(Host, Host)>) -> anyhow::Result<Vec<(Host, Host)>> {
    for (one, other) in &pairs {
        servers.network().cut(one, other)?;
    }
    Ok(pairs)
}

fn heal(servers: &dyn Servers, pairs: Vec<(Host, Host)>) -> anyhow::Result<()> {
    for (one, other) in pairs {
        servers.network().heal(&one, &other)?;
    }
    Ok(())
}
