//! A process of a session, which does not outlive its owner.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::signal::unix::{SignalKind, signal};

use super::WORD;

/// Killed when it is dropped.
pub(super) struct Process(Child);

/// A process, and the other ends of its pipes.
pub(super) struct Started {
    pub(crate) process: Process,
    pub(crate) stdin: Sender,
    pub(crate) stdout: Receiver,
    pub(crate) stderr: Receiver,
}

impl Process {
    /// Starts a process that inherits nothing but the pipes.
    pub(super) fn start(program: &Path) -> io::Result<Started> {
        let child = Command::new(program)
            .arg(WORD)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut process = Self(child);
        let missing = || io::Error::other("no pipe");
        Ok(Started {
            stdin: Sender::from_owned_fd(OwnedFd::from(process.0.stdin.take().ok_or_else(missing)?))?,
            stdout: Receiver::from_owned_fd(OwnedFd::from(process.0.stdout.take().ok_or_else(missing)?))?,
            stderr: Receiver::from_owned_fd(OwnedFd::from(process.0.stderr.take().ok_or_else(missing)?))?,
            process,
        })
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        // Before the check, so that an end right after it is not missed.
        let mut ends = signal(SignalKind::child())?;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            ends.recv().await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended. After SIGKILL the wait is short, and leaves no zombie.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
