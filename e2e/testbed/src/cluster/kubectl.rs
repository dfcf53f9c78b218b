//! `kubectl` as a cluster's administrator.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::ensure;

use super::build::Programs;
use super::layout;
use crate::{Host, Process};

/// The program, and the cluster that it is for.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// Path of the program.
    pub program: PathBuf,
    /// The kubeconfig, with the API server and the user.
    pub kubeconfig: PathBuf,
    /// The host on which it runs; this one if there is none.
    pub host: Option<Host>,
}

impl Kubectl {
    /// For the cluster of this machine, on the host of its API server.
    pub fn own(programs: &Programs, control_plane: &Host) -> Self {
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
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let Output {
            status,
            stdout,
            stderr,
        } = self.spawn(arguments)?.output()?;
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
    pub fn spawn(&self, arguments: &[&str]) -> std::io::Result<Process> {
        let mut command = Command::new(&self.program);
        Process::piped(&mut command)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig);
        match &self.host {
            Some(host) => host.spawn("kubectl", command),
            None => Process::spawn("kubectl", command),
        }
    }
}
