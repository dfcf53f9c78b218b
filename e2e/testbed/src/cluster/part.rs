//! A program of the cluster that can be killed and started again.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::Pid;

use super::cgroups;
use super::layout::{NodeLayout, directory};
use crate::clock::since_boot;
use crate::{Host, Process};

/// A small, busy machine needs half a minute for the slowest program, the API server.
const READY_BOUND: Duration = Duration::from_secs(180);
/// Time between two checks of a program that has just been started. A check costs more than a poll of our
/// own.
const READY_POLL: Duration = Duration::from_millis(100);

/// A program: how to start it, and how to check that it serves.
pub(crate) struct Part {
    name: String,
    host: Host,
    /// The node on which it runs, in the node's control group.
    node: Option<NodeLayout>,
    command: Box<dyn Fn() -> Command + Send>,
    ready: Ready,
    process: Option<Process>,
}

/// The check that a program serves, given its process id.
pub(crate) type Ready = Box<dyn Fn(Pid) -> bool + Send>;

impl Part {
    /// A program that does not run yet.
    pub(crate) fn new(
        name: impl Into<String>,
        host: &Host,
        node: Option<NodeLayout>,
        command: impl Fn() -> Command + Send + 'static,
        ready: Ready,
    ) -> Self {
        Self {
            name: name.into(),
            host: host.clone(),
            node,
            command: Box::new(command),
            ready,
            process: None,
        }
    }

    /// `kube-apiserver`, `n1/kubelet`, …
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn node(&self) -> Option<NodeLayout> {
        self.node
    }

    /// Starts it, `inside` the mounts of another process if there is one. Does nothing while it runs.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(&mut self, inside: Option<Pid>) -> anyhow::Result<()> {
        if self.pid().is_some() {
            return Ok(());
        }
        let log = self.log()?;
        let mut command = (self.command)();
        if let Some(pid) = inside {
            command = in_mounts_of(pid, &command);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = self.host.spawn(self.name.as_str(), command)?;
        if let Some(node) = self.node {
            cgroups::enter(node, process.pid())?;
        }
        self.process = Some(process);
        Ok(())
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// When it ends instead, or takes minutes; with the end of its log.
    pub(crate) fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let end = since_boot() + READY_BOUND;
        loop {
            let Some(pid) = self.pid() else {
                bail!("{} has ended:\n{}", self.name, self.log_end());
            };
            if (self.ready)(pid) {
                return Ok(());
            }
            if since_boot() >= end {
                bail!(
                    "{} does not serve after {READY_BOUND:?}:\n{}",
                    self.name,
                    self.log_end()
                );
            }
            std::thread::sleep(READY_POLL);
        }
    }

    /// Kills it, and waits for its end. What it has started lives on.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Its process id; `None` when it does not run.
    pub(crate) fn pid(&mut self) -> Option<Pid> {
        let process = self.process.as_mut()?;
        process.is_running().then(|| process.pid())
    }

    /// True once if it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        let ended = self.process.is_some() && self.pid().is_none();
        if ended {
            self.process = None;
        }
        ended
    }

    fn log(&self) -> anyhow::Result<File> {
        let path = self.log_path();
        fs::create_dir_all(path.parent().context("a log is in a directory")?)?;
        Ok(File::options().create(true).append(true).open(path)?)
    }

    fn log_end(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        directory()
            .join("log")
            .join(format!("{}.log", self.name.replace('/', "-")))
    }
}

/// The same command in the mount namespace of a process.
fn in_mounts_of(pid: Pid, command: &Command) -> Command {
    let mut entered = Command::new("nsenter");
    entered
        .arg(format!("--mount=/proc/{}/ns/mnt", pid.as_raw_pid()))
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => entered.env(name, value),
            None => entered.env_remove(name),
        };
    }
    entered
}

/// Waits until a condition of the whole cluster holds, according to the API server.
///
/// # Errors
/// When it does not within minutes.
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let end = since_boot() + READY_BOUND;
    loop {
        match holds() {
            Ok(true) => return Ok(()),
            Err(error) if since_boot() >= end => return Err(error),
            Ok(false) if since_boot() >= end => {
                bail!("after {READY_BOUND:?} it is still not so that {what}")
            }
            _ => std::thread::sleep(READY_POLL),
        }
    }
}
