//! `kubectl` as a cluster's administrator.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::build::Programs;
use super::layout;
use crate::{Host, Process};

/// Longer than any `--timeout` that tests give it.
const BOUND: Duration = Duration::from_secs(900);

/// The same for a command in a container. If the node loses its connection, kubectl never hears how the command has ended.
const EXEC_BOUND: Duration = Duration::from_secs(120);

/// The program, and the cluster that it is for.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    pub program: PathBuf,
    /// The kubeconfig, with the API server and the user.
    pub kubeconfig: PathBuf,
    /// The host on which it runs; this one if there is none.
    pub host: Option<Host>,
}

impl Kubectl {
    /// For the cluster of this machine, on the host of its API server.
    pub(crate) fn own(programs: &Programs, control_plane: &Host) -> Self {
        Self {
            program: programs.path("kubectl"),
            kubeconfig: layout::kubeconfig(),
            host: Some(control_plane.clone()),
        }
    }

    /// Runs it, and returns its output.
    ///
    /// # Errors
    /// When it fails, with its message.
    pub(crate) fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let bound = if arguments.contains(&"exec") {
            EXEC_BOUND
        } else {
            BOUND
        };
        let output = self.spawn(arguments)?.output_within(bound)?;
        let Output {
            status,
            stdout,
            stderr,
        } = output
            .with_context(|| format!("kubectl {} has not ended within {bound:?}", arguments.join(" ")))?;
        ensure!(
            status.success(),
            "kubectl {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&stderr).trim()
        );
        Ok(String::from_utf8(stdout)?)
    }

    /// Starts it.
    ///
    /// # Errors
    /// When that is not possible.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> std::io::Result<Process> {
        let mut command = Command::new(&self.program);
        Process::piped(&mut command)
            .args(arguments)
            // It ends before collecting garbage would pay.
            .env("GOGC", "off")
            .env("GOMEMLIMIT", "128MiB")
            .env("KUBECONFIG", &self.kubeconfig);
        match &self.host {
            Some(host) => host.spawn("kubectl", command),
            None => Process::spawn("kubectl", command),
        }
    }
}
