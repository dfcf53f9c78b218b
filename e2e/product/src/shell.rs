//! One shell for all commands of a tutorial, as a reader has it: with variables, in the checkout.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, ensure};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::{Cluster, Process};
use rustix::process::{Signal, kill_process_group};
use tempfile::TempDir;

use crate::chart::WORKSPACE;

/// Behind the output of a command, with its exit code.
const END: &str = "=== exit code ";

/// A running bash.
#[derive(Debug)]
pub struct Shell {
    stdin: ChildStdin,
    lines: Receiver<String>,
    process: Process,
    // Ends with the shell.
    _programs: TempDir,
}

impl Shell {
    /// Starts it. The programs of a folder go before those of this machine.
    ///
    /// # Errors
    /// When bash cannot be started.
    pub fn start(programs: TempDir, variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let path = std::env::var("PATH")?;
        let mut command = Command::new("bash");
        command
            .args(["--noprofile", "--norc"])
            .current_dir(WORKSPACE)
            .envs(variables.iter().copied())
            .env("PATH", format!("{}:{path}", programs.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::spawn("bash", command)?;
        let mut stdin = process
            .child_mut()
            .stdin
            .take()
            .context("a way to give commands")?;
        let stdout = process
            .child_mut()
            .stdout
            .take()
            .context("a way to read their output")?;
        writeln!(stdin, "exec 2>&1")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            stdin,
            lines,
            process,
            _programs: programs,
        })
    }

    /// A shell with a cluster's kubectl and helm on the path, and with this plug-in of kubectl.
    ///
    /// # Errors
    /// When bash cannot be started, or it is a cluster of the user's own.
    pub fn on(cluster: &Cluster, plugin: &Path) -> anyhow::Result<Self> {
        let programs = tempfile::tempdir()?;
        for name in ["kubectl", "helm"] {
            symlink(cluster.program(name)?, programs.path().join(name))?;
        }
        symlink(plugin, programs.path().join("kubectl-lockkeeper"))?;
        let kubeconfig = cluster.kubeconfig().display().to_string();
        Self::start(programs, &[("KUBECONFIG", &kubeconfig)])
    }

    /// The output of a command, errors included.
    ///
    /// # Errors
    /// When it fails, or takes longer than `bound`.
    pub fn run(&mut self, command: &str, bound: Duration) -> anyhow::Result<Vec<String>> {
        // The output of some commands does not end with the end of a line.
        writeln!(
            self.stdin,
            "{command}\ncode=$?; echo; echo \"{END}$code\"; unset code"
        )?;
        let end = BootInstant::now() + bound;
        let mut output = Vec::new();
        loop {
            let rest = end.saturating_since(BootInstant::now());
            let line = self
                .lines
                .recv_timeout(rest)
                .with_context(|| format!("it has not ended after {bound:?}:\n{}", output.join("\n")))?;
            if let Some(code) = line.strip_prefix(END) {
                ensure!(code == "0", "exit code {code}:\n{}", output.join("\n"));
                if output.last().is_some_and(String::is_empty) {
                    output.pop();
                }
                return Ok(output);
            }
            output.push(line);
        }
    }
}

impl Drop for Shell {
    /// A command that has not ended goes with the shell, which leads its group.
    fn drop(&mut self) {
        // Fails only if nothing is left of the group.
        let _ = kill_process_group(self.process.pid(), Signal::KILL);
    }
}
