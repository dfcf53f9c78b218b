//! `kubectl` as a cluster's administrator.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::ensure;

use super::build::Programs;
use super::layout::KUBECONFIG;
use crate::{Host, Process};

/// The program, and which cluster it is for.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// Where it is.
    pub program: PathBuf,
    /// Whom it asks, and as whom.
    pub kubeconfig: PathBuf,
    /// Where it runs; here if there is none.
    pub host: Option<Host>,
}

impl Kubectl {
    /// For the cluster of this machine, where the API server is near.
    pub fn own(programs: &Programs, control_plane: &Host) -> Self {
        Self {
            program: programs.path("kubectl"),
            kubeconfig: PathBuf::from(KUBECONFIG),
            host: Some(control_plane.clone()),
        }
    }

    /// Runs it; tells what it has printed.
    ///
    /// # Errors
    /// When it fails; with its own words.
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
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match &self.host {
            Some(host) => host.spawn("kubectl", command),
            None => Process::spawn("kubectl", command),
        }
    }
}
