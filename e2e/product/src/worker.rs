//! A worker as users run it: `lockkeeper run` with a guarded program that records when it ran.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use lockkeeper_judge::record::{Moment, Record, Records};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, Host, Process};
use rustix::process::Pid;

use crate::binaries;

/// How to start a [`Worker`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the worker, of its files, and in the record.
    pub name: String,
    pub host: Host,
    pub connect: String,
    pub lock: String,
    pub session_timeout: Duration,
    pub stop_grace: Duration,
    /// Further options of `lockkeeper run`.
    pub run: Vec<String>,
    /// Further options of the recorder.
    pub recorder: Vec<String>,
}

/// A running `lockkeeper run`. Drop kills it, keeper and guard.
#[derive(Debug)]
pub struct Worker {
    options: Options,
    guard: Process,
    record: PathBuf,
    log: PathBuf,
}

impl Options {
    /// A worker on a host of its own that knows all servers, with T = 4 s and a stop grace of 0.4 s, for an
    /// ensemble whose tick is 1 s.
    ///
    /// # Errors
    /// When no further host can be made.
    pub fn new(ensemble: &Ensemble, name: &str, lock: &str) -> anyhow::Result<Self> {
        Ok(Self::on(ensemble.client(name)?, ensemble, name, lock))
    }

    /// The same on a given host.
    pub fn on(host: Host, ensemble: &Ensemble, name: &str, lock: &str) -> Self {
        Self {
            name: name.to_owned(),
            host,
            connect: ensemble.connect_string(),
            lock: lock.to_owned(),
            session_timeout: Duration::from_secs(4),
            stop_grace: Duration::from_millis(400),
            run: Vec::new(),
            recorder: Vec::new(),
        }
    }

    /// The same with further options of `lockkeeper run`.
    pub fn with_run(mut self, options: &[&str]) -> Self {
        self.run.extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    /// The same with further options of the recorder.
    pub fn with_recorder(mut self, options: &[&str]) -> Self {
        self.recorder
            .extend(options.iter().map(|&option| option.to_owned()));
        self
    }
}

impl Worker {
    /// Starts a worker; its record and its log go into the directory of the ensemble.
    ///
    /// # Errors
    /// When a program cannot be built or started.
    pub fn start(ensemble: &Ensemble, options: Options) -> anyhow::Result<Self> {
        let record = ensemble.directory().join(format!("{}.record", options.name));
        let log = ensemble.directory().join(format!("{}.log", options.name));
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(binaries::lockkeeper()?);
        command
            .arg("run")
            .args(["--connect", &options.connect, "--lock", &options.lock])
            .args(["--session-timeout", &millis(options.session_timeout)])
            .args(["--stop-grace", &millis(options.stop_grace)])
            .args(["--tick-time", &millis(ensemble.config().tick)])
            .args([
                "--log",
                "info,lockkeeper_lock=debug,lockkeeper_sidecar=debug,zookeeper_client=error",
            ])
            .args(&options.run)
            .arg("--")
            .arg(binaries::recorder()?)
            .arg(&record)
            .args(["--name", &options.name])
            .args(&options.recorder)
            .stdout(file.try_clone()?)
            .stderr(file);
        let guard = options.host.spawn(options.name.as_str(), command)?;
        Ok(Self {
            options,
            guard,
            record,
            log,
        })
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The process that the user started: the guard.
    pub fn guard(&mut self) -> &mut Process {
        &mut self.guard
    }

    pub fn guard_pid(&self) -> Pid {
        self.guard.pid()
    }

    /// Process id of the keeper; `None` while there is none.
    pub fn keeper_pid(&self) -> Option<Pid> {
        keeper_of(self.guard.pid())
    }

    /// Process id of the program's main process; `None` while there is none.
    pub fn program_pid(&self) -> Option<Pid> {
        program_of(self.guard.pid())
    }

    /// All records of its program so far, including those of earlier workers of the same name.
    ///
    /// # Errors
    /// When the record is malformed.
    pub fn records(&self) -> anyhow::Result<Vec<Record>> {
        if !self.record.exists() {
            return Ok(Vec::new());
        }
        Ok(Records::read(&self.record)?.records)
    }

    pub fn record_file(&self) -> &Path {
        &self.record
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until its program has begun under a token that is greater than `than`, and returns the token.
    ///
    /// # Errors
    /// When it does not within `bound`, with the worker's log.
    pub fn wait_until_it_runs(&self, than: i64, bound: Duration) -> anyhow::Result<i64> {
        let began = || {
            self.records().ok()?.iter().rev().find_map(|record| {
                (matches!(record.moment, Moment::Begin { .. }) && record.token > than).then_some(record.token)
            })
        };
        wait_for(bound, began).with_context(|| {
            format!(
                "{} did not run within {bound:?}:\n{}",
                self.options.name,
                self.log()
            )
        })
    }

    /// The moment of the first record under `token`.
    ///
    /// # Errors
    /// When there is none, or the record is malformed.
    pub fn first_stamp(&self, token: i64) -> anyhow::Result<BootInstant> {
        self.stamp(token, |stamps| stamps.min())
    }

    /// The moment of the last record under `token`.
    ///
    /// # Errors
    /// When there is none, or the record is malformed.
    pub fn last_stamp(&self, token: i64) -> anyhow::Result<BootInstant> {
        self.stamp(token, |stamps| stamps.max())
    }

    fn stamp(
        &self,
        token: i64,
        choose: impl FnOnce(&mut dyn Iterator<Item = BootInstant>) -> Option<BootInstant>,
    ) -> anyhow::Result<BootInstant> {
        let records = self.records()?;
        let of_token = records.iter().filter(|record| record.token == token);
        choose(&mut of_token.map(|record| record.at))
            .with_context(|| format!("{} recorded nothing under token {token}", self.options.name))
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// When it does not end within `bound`, with the worker's log.
    pub fn wait_until_it_ends(&mut self, bound: Duration) -> anyhow::Result<ExitStatus> {
        let status = self.guard.wait(bound)?;
        status.with_context(|| {
            format!(
                "{} did not end within {bound:?}:\n{}",
                self.options.name,
                self.log()
            )
        })
    }
}

/// Records of several workers together, for the checker.
///
/// # Errors
/// When one of them is malformed.
pub fn all_records<'a>(workers: impl IntoIterator<Item = &'a Worker>) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    for worker in workers {
        records.extend(worker.records()?);
    }
    Ok(records)
}

pub fn keeper_of(guard: Pid) -> Option<Pid> {
    children(guard).into_iter().find(|pid| {
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable.starts_with(b"LOCKKEEPER_KEEPER_SOCKET="))
    })
}

/// The anchor below a guard, once the application was started.
pub fn anchor_of(guard: Pid) -> Option<Pid> {
    let keeper = keeper_of(guard);
    children(guard).into_iter().find(|pid| Some(*pid) != keeper)
}

/// The main process of the program below a guard, once it was started.
pub fn program_of(guard: Pid) -> Option<Pid> {
    // The oldest child; the others are orphans.
    children(anchor_of(guard)?).into_iter().next()
}

fn children(parent: Pid) -> Vec<Pid> {
    let path = format!("/proc/{0}/task/{0}/children", parent.as_raw_pid());
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
