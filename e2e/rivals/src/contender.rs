//! A contender: a driver on a machine, and the recorder that it runs while it holds the lock.

use std::cell::RefCell;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::ensure;
use lockkeeper_judge::record::{Record, Tail};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::binaries;
use lockkeeper_product::worker::keeper_of;
use lockkeeper_testbed::{Host, Process};
use rustix::process::{Pid, Signal};

use crate::driver_commands;
use crate::programs::named;
use crate::servers::Servers;
use crate::site::Machine;
use crate::systems::{Driver, System};

/// How many lines of a file tell what happened last.
const LAST_LINES: usize = 8;

pub(crate) struct Contender {
    name: String,
    process: Process,
    is_own: bool,
    /// [`System::program`].
    program: Option<&'static str>,
    /// What has been read of its record.
    lines: RefCell<(Tail, Vec<Record>)>,
    record: PathBuf,
    events: PathBuf,
    /// The file that says how far its wall clock is off (libfaketime).
    clock: PathBuf,
}

/// What a driver has said.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct Said {
    /// `ready`, `held`, `lost`, `released` or `error`.
    pub event: String,
    /// When, in nanoseconds since boot.
    pub at: u64,
    /// The fencing token, where the library has one.
    pub token: Option<i64>,
}

/// What a contender contends for, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// What the driver is told of its system.
    pub driver: &'a str,
    /// The name of the lock.
    pub lock: &'a str,
    /// How its files begin.
    pub files: &'a str,
    /// Where the system takes any.
    pub lease: Duration,
    /// Its clock can be shifted, which costs it time of its processor.
    pub has_own_clock: bool,
}

impl<'a> Part<'a> {
    /// As in most rounds.
    pub(crate) fn of(system: &System, lock: &'a str, lease: Duration) -> Self {
        Self {
            driver: system.name_for_driver(),
            lock,
            files: lock,
            lease,
            has_own_clock: false,
        }
    }
}

impl Contender {
    /// Starts a contender on a machine.
    ///
    /// # Errors
    /// When its driver cannot be built or started.
    pub(crate) fn start(
        system: &System,
        servers: &dyn Servers,
        machine: &Machine,
        part: Part<'_>,
    ) -> anyhow::Result<Self> {
        let name = machine.host.name();
        let file = |kind: &str| machine.directory().join(format!("{}.{kind}", part.files));
        let (record, events, clock) = (file("record"), file("events"), file("clock"));
        std::fs::write(&clock, "+0\n")?;
        let lease = format!("{}", part.lease.as_millis());
        let mut command = match (system.driver, driver_commands::command(system)?) {
            (Driver::Own(options), _) => own(servers, part.lock, options)?,
            (_, Some(mut command)) => {
                command
                    .args(["--system", part.driver, "--servers", &servers.addresses()])
                    .args(["--lock", part.lock, "--name", name, "--lease-ms", &lease])
                    .args(servers.options());
                command
            }
            (_, None) => anyhow::bail!("{} has no driver", system.name),
        };
        named(&mut command, servers.names())
            .arg("--")
            .arg(binaries::recorder()?)
            .arg(&record)
            .args(["--name", name])
            .envs(
                part.has_own_clock
                    .then(|| shifted_clock(&clock))
                    .into_iter()
                    .flatten(),
            )
            .stdin(Stdio::null())
            .stdout(File::create(&events)?)
            .stderr(File::create(file("log"))?);
        let process = machine.host.spawn(name, command)?;
        Ok(Self {
            name: name.to_owned(),
            process,
            is_own: matches!(system.driver, Driver::Own(_)),
            program: system.program,
            lines: RefCell::new((Tail::new(&record), Vec::new())),
            record,
            events,
            clock,
        })
    }

    /// Asks it to stop its program, give the lock back and end.
    pub(crate) fn end(&mut self) {
        self.process.signal(Signal::TERM);
    }

    /// What its recorder has written.
    ///
    /// # Errors
    /// When the file is malformed.
    pub(crate) fn records(&self) -> anyhow::Result<Vec<Record>> {
        self.read()?;
        Ok(self.lines.borrow().1.clone())
    }

    /// When its recorder has written its last line, if it has ever run.
    ///
    /// # Errors
    /// As [`Contender::records`].
    pub(crate) fn last_ran(&self) -> anyhow::Result<Option<BootInstant>> {
        self.read()?;
        Ok(self.lines.borrow().1.last().map(|record| record.at))
    }

    /// Reads what has been added to the record: a round looks often, and the file is long.
    fn read(&self) -> anyhow::Result<()> {
        let (tail, lines) = &mut *self.lines.borrow_mut();
        lines.extend(tail.read()?);
        Ok(())
    }

    /// What its recorder has written until now, in a file of its own.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub(crate) fn snapshot(&self) -> anyhow::Result<PathBuf> {
        let file = self.record.with_extension("snapshot");
        if self.record.exists() {
            std::fs::copy(&self.record, &file)?;
        } else {
            // It has never run.
            File::create(&file)?;
        }
        Ok(file)
    }

    /// What its driver has said. Our own says nothing in this form.
    pub(crate) fn said(&self) -> Vec<Said> {
        let text = std::fs::read_to_string(&self.events).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Whether the library gives its holder a fencing token. Without one the recorder gets the time.
    pub(crate) fn has_token(&self) -> bool {
        self.is_own || self.said().iter().any(|said| said.token.is_some())
    }

    /// When its driver first said, after a moment, that the lock was lost.
    pub(crate) fn lost_after(&self, since: BootInstant) -> Option<BootInstant> {
        let lost = self.said().into_iter().filter(|said| said.event == "lost");
        let mut times = lost.map(|said| BootInstant::from_nanos(said.at));
        times.find(|at| *at >= since)
    }

    /// Sets its wall clock off by so many seconds, as its driver reads it.
    ///
    /// # Errors
    /// When the file cannot be written, or the driver does not take the time from it.
    pub(crate) fn shift_clock(&self, seconds: i64) -> anyhow::Result<()> {
        let pid = self.process.pid().as_raw_pid();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        ensure!(
            maps.contains("libfaketime"),
            "{}'s clock cannot be shifted: it has not loaded {FAKETIME} (Debian's package faketime)",
            self.name
        );
        Ok(std::fs::write(&self.clock, format!("{seconds:+}\n"))?)
    }

    /// The files with what its driver has said, and logged.
    pub(crate) fn texts(&self) -> [PathBuf; 2] {
        [self.events.clone(), self.log()]
    }

    fn log(&self) -> PathBuf {
        self.record.with_extension("log")
    }

    /// The last lines of what its driver has said and logged.
    pub(crate) fn last_lines(&self) -> String {
        let last = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(LAST_LINES).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        format!("{}:\n{}\n{}", self.name, last(&self.events), last(&self.log()))
    }

    /// The process that has the library in it: the driver, the program that it runs, or our keeper.
    pub(crate) fn library(&self) -> Option<Pid> {
        match self.program {
            _ if self.is_own => keeper_of(self.process.pid()),
            Some(program) => child_of(self.process.pid(), program),
            None => Some(self.process.pid()),
        }
    }

    /// Which of the servers it has a connection to.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn talks_to(&self, servers: &[Host]) -> anyhow::Result<Option<usize>> {
        // Java's sockets are all of IPv6.
        let read =
            |table| std::fs::read_to_string(format!("/proc/{}/net/{table}", self.process.pid().as_raw_pid()));
        let tables = read("tcp")? + &read("tcp6").unwrap_or_default();
        let peers: Vec<_> = tables.lines().filter_map(established).collect();
        Ok(servers
            .iter()
            .position(|server| peers.contains(&server.address())))
    }
}

/// The child of a process that runs a program of this name.
fn child_of(parent: Pid, program: &str) -> Option<Pid> {
    // Any thread of Go's may have started it.
    let threads = std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_pid())).ok()?;
    let children: Vec<_> = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .collect();
    children
        .iter()
        .flat_map(|children| children.split_whitespace())
        .find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == program)
        })
        .and_then(|pid| Pid::from_raw(pid.parse().ok()?))
}

/// The other end of an established connection: a line of `/proc/PID/net/tcp` or `tcp6` (proc_pid_net(5)), with the address
/// in the byte order of the machine. In an address of IPv6, that of IPv4 is at the end.
fn established(line: &str) -> Option<Ipv4Addr> {
    let mut words = line.split_whitespace().skip(2);
    let (address, _) = words.next()?.split_once(':')?;
    let number = u32::from_str_radix(address.get(address.len().checked_sub(8)?..)?, 16).ok()?;
    (words.next()? == "01").then(|| Ipv4Addr::from(number.to_ne_bytes()))
}

/// `lockkeeper run`, which restarts its command when it has the lock again; with its defaults, but for these options.
fn own(servers: &dyn Servers, lock: &str, options: &[&str]) -> anyhow::Result<Command> {
    let mut command = driver_commands::own(&servers.addresses(), lock)?;
    command.args(["--restart", "always"]).args(options);
    Ok(command)
}

/// Debian's package `faketime` has it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// The environment in which libfaketime shifts the wall clock, and no other clock, as a file says.
fn shifted_clock(file: &Path) -> Vec<(&'static str, PathBuf)> {
    if !Path::new(FAKETIME).exists() {
        return Vec::new();
    }
    vec![
        ("LD_PRELOAD", FAKETIME.into()),
        ("FAKETIME_TIMESTAMP_FILE", file.into()),
        // It reads the file again when this many seconds are over.
        ("FAKETIME_CACHE_DURATION", "1".into()),
        ("DONT_FAKE_MONOTONIC", "1".into()),
        // Otherwise Java's waits end at once, and it waits again without a pause.
        ("FAKETIME_FORCE_MONOTONIC_FIX", "0".into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_while_it_is_established() {
        let line = "   0: 0100007F:B0D2 0200630A:084B 01 00000000:00000000 00:00000000 00000000     0";
        assert_eq!(established(line), Some(Ipv4Addr::new(10, 99, 0, 2)));
        let mapped = line.replace("0200630A", "0000000000000000FFFF00000200630A");
        assert_eq!(established(&mapped), Some(Ipv4Addr::new(10, 99, 0, 2)));
        assert_eq!(established(&line.replace(" 01 ", " 06 ")), None);
        assert_eq!(established("  sl  local_address rem_address   st"), None);
    }
}
