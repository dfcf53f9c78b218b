//! A contender: a driver on a machine of its own, and the recorder that it runs while it holds the lock.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper_judge::record::{Record, Records};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::binaries;
use lockkeeper_product::worker::keeper_of;
use lockkeeper_testbed::{Host, Process};
use rustix::process::{Pid, Signal};

use crate::driver_commands;
use crate::servers::Servers;
use crate::systems::{Driver, System};

/// How long a contender may take to release and end after SIGTERM.
const FAREWELL: Duration = Duration::from_secs(10);

/// How many lines of a file tell what happened last.
const LAST_LINES: usize = 8;

pub(crate) struct Contender {
    pub host: Host,
    process: Process,
    is_own: bool,
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

impl Contender {
    /// Starts a contender for `lock`, with this lease where the system has one.
    ///
    /// # Errors
    /// When its driver cannot be built or started.
    pub(crate) fn start(
        system: &System,
        servers: &dyn Servers,
        lock: &str,
        name: &str,
        lease: Duration,
    ) -> anyhow::Result<Self> {
        let host = servers.network().host(name)?;
        let file = |kind: &str| servers.directory().join(format!("{lock}-{name}.{kind}"));
        let (record, events, clock) = (file("record"), file("events"), file("clock"));
        std::fs::write(&clock, "+0\n")?;
        let lease = format!("{}", lease.as_millis());
        let mut command = match (system.driver, driver_commands::command(system)?) {
            (Driver::Own(options), _) => own(servers, lock, &lease, options)?,
            (_, Some(mut command)) => {
                command
                    // Whether there are Sentinels, the addresses say.
                    .args(["--system", system.name.trim_end_matches("@sentinel")])
                    .args(["--servers", &servers.addresses()])
                    .args(["--lock", lock, "--name", name, "--lease-ms", &lease])
                    .args(servers.options());
                command
            }
            (_, None) => anyhow::bail!("{} has no driver", system.name),
        };
        command
            .arg("--")
            .arg(binaries::recorder()?)
            .arg(&record)
            .args(["--name", name])
            .envs(shifted_clock(&clock))
            .stdin(Stdio::null())
            .stdout(File::create(&events)?)
            .stderr(File::create(file("log"))?);
        let process = host.spawn(name, command)?;
        Ok(Self {
            host,
            process,
            is_own: matches!(system.driver, Driver::Own(_)),
            record,
            events,
            clock,
        })
    }

    /// What its recorder has written.
    ///
    /// # Errors
    /// When the file is malformed.
    pub(crate) fn records(&self) -> anyhow::Result<Vec<Record>> {
        if !self.record.exists() {
            return Ok(Vec::new());
        }
        Ok(Records::read(&self.record)?.records)
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
    /// When the file cannot be written.
    pub(crate) fn shift_clock(&self, seconds: i64) -> std::io::Result<()> {
        std::fs::write(&self.clock, format!("{seconds:+}\n"))
    }

    /// The last lines of what its driver has said and logged.
    pub(crate) fn last_lines(&self) -> String {
        let last = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(LAST_LINES).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        let log = self.record.with_extension("log");
        format!("{}:\n{}\n{}", self.host.name(), last(&self.events), last(&log))
    }

    /// The process that has the library in it: the driver, or our keeper.
    pub(crate) fn library(&self) -> Option<Pid> {
        if self.is_own {
            keeper_of(self.process.pid())
        } else {
            Some(self.process.pid())
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

    /// Asks it to end, and kills what is left of it.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.host.signal_all(Signal::CONT)?;
        self.process.signal(Signal::TERM);
        self.process.wait(FAREWELL)?;
        Ok(self.host.signal_all(Signal::KILL)?)
    }
}

/// The other end of an established connection: a line of `/proc/PID/net/tcp` or `tcp6` (proc_pid_net(5)), with the address
/// in the byte order of the machine. In an address of IPv6, that of IPv4 is at the end.
fn established(line: &str) -> Option<Ipv4Addr> {
    let mut words = line.split_whitespace().skip(2);
    let (address, _) = words.next()?.split_once(':')?;
    let number = u32::from_str_radix(address.get(address.len().checked_sub(8)?..)?, 16).ok()?;
    (words.next()? == "01").then(|| Ipv4Addr::from(number.to_ne_bytes()))
}

/// `lockkeeper run`, which restarts its command when it has the lock again.
fn own(servers: &dyn Servers, lock: &str, lease: &str, options: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(binaries::lockkeeper()?);
    command
        .args([
            "run",
            "--connect",
            &servers.addresses(),
            "--lock",
            &format!("/rivals/{lock}"),
        ])
        .args(["--session-timeout", &format!("{lease}ms"), "--tick-time", "1s"])
        .args(["--stop-grace", "200ms", "--restart", "always"])
        .args(options);
    Ok(command)
}

/// The environment in which libfaketime (Debian's package `faketime`) shifts the wall clock, and no other clock, as a file
/// says.
fn shifted_clock(file: &Path) -> Vec<(&'static str, PathBuf)> {
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
    if !Path::new(library).exists() {
        return Vec::new();
    }
    vec![
        ("LD_PRELOAD", library.into()),
        ("FAKETIME_TIMESTAMP_FILE", file.into()),
        ("FAKETIME_NO_CACHE", "1".into()),
        ("DONT_FAKE_MONOTONIC", "1".into()),
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
