//! Starts the supervisor of a cluster, and says where that is impossible.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use tempfile::NamedTempFile;

use super::build::Programs;
use super::config::Config;
use super::images;
use super::layout::{self, find_program};
use crate::Unsupported;
use crate::binaries;

/// The process that owns everything of a cluster. Drop ends it, and waits until it has removed everything,
/// unless it is detached.
#[derive(Debug)]
pub(crate) struct Supervisor {
    process: Child,
    /// Its error messages.
    complaints: NamedTempFile,
    detached: bool,
}

impl Supervisor {
    /// Starts it, and waits until the cluster is ready.
    ///
    /// # Errors
    /// When that fails, with its message.
    pub(crate) fn start(config: &Config, detached: bool) -> anyhow::Result<Self> {
        let mut command = Command::new(binaries::cluster()?);
        command
            .arg("supervise")
            .env(layout::NUMBER, layout::number().to_string())
            .args(["--nodes", &config.nodes.to_string()])
            .args(["--node-grace", &format!("{}s", config.node_grace.as_secs())])
            // Not in the terminal's group: after a Ctrl-C it ends with its standard input.
            .process_group(0)
            .stdin(if detached { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped());
        if detached {
            command.arg("--detached");
        }
        let complaints = NamedTempFile::with_prefix("lockkeeper-cluster.")?;
        command.stderr(complaints.reopen()?);
        let mut process = command.spawn().context("cannot start the cluster's supervisor")?;
        let output = process.stdout.take().context("the command has a pipe")?;
        for line in BufReader::new(output).lines() {
            let line = line?;
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("ready", _) => {
                    return Ok(Self {
                        process,
                        complaints,
                        detached,
                    });
                }
                ("progress", text) => eprintln!("{text}"),
                (_, text) => {
                    process.wait()?;
                    bail!("the cluster does not start: {}", text.replace('\t', "\n"));
                }
            }
        }
        process.wait()?;
        bail!(
            "the cluster's supervisor has died:\n{}",
            fs::read_to_string(complaints.path())?
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.detached {
            return;
        }
        drop(self.process.stdin.take());
        if !self.process.wait().is_ok_and(|status| status.success()) {
            let complaints = fs::read_to_string(self.complaints.path()).unwrap_or_default();
            eprintln!("the cluster has not ended in good order: {complaints}");
        }
    }
}

/// Why no cluster can be started on this machine; `Ok` where it can.
///
/// # Errors
/// The reason.
pub(crate) fn can_start() -> Result<(), Unsupported> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unsupported::new(
            "a cluster on this machine needs root, for namespaces and mounts",
        ));
    }
    for (program, package) in [
        ("runc", "runc"),
        ("ip", "iproute2"),
        ("iptables", "iptables"),
        ("nsenter", "util-linux"),
    ] {
        if find_program(program).is_none() {
            return Err(Unsupported::new(format!(
                "a cluster on this machine needs {program}, which is missing: apt-get install {package}"
            )));
        }
    }
    images::can_build()?;
    Programs::found().map(drop)
}
