//! A guard that is the parent of the keeper.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getppid, kill_process, pidfd_open, pidfd_send_signal};

use super::connection::Connection;
use crate::link::protocol::{FromGuard, ToGuard};

/// A guard that started us.
#[derive(Debug)]
pub(crate) struct Parent {
    connection: Connection,
    pid: Pid,
    /// Refers to that process, and never to a later one with the same number. `None` where a sandbox or an old kernel
    /// (before 5.3) does not have pidfds.
    process: Option<OwnedFd>,
}

impl Parent {
    /// Over the keeper's half of the socket pair that the guard made.
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        // The process that made the socket pair. Its number can belong to another process only after it has ended, and
        // then the socket is closed.
        let guard = rustix::net::sockopt::socket_peercred(&socket)?;
        Ok(Self {
            process: pidfd_open(guard.pid, PidfdFlags::empty()).ok(),
            connection: Connection::from_std(socket)?,
            pid: guard.pid,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// While it is our parent it has not ended, so the number is still its own.
    pub(super) fn is_our_parent(&self) -> bool {
        getppid() == Some(self.pid)
    }

    /// As [`Connection::recv`].
    pub(super) async fn recv(&mut self) -> Option<FromGuard> {
        self.connection.recv().await
    }

    /// As [`Connection::send`].
    pub(super) fn send(&mut self, frame: ToGuard) {
        self.connection.send(frame);
    }

    pub(super) fn kill(&self) -> Result<(), Errno> {
        let sent = self
            .process
            .as_ref()
            .map(|process| pidfd_send_signal(process, Signal::KILL));
        match sent {
            None | Some(Err(Errno::NOSYS | Errno::PERM)) if self.is_our_parent() => {
                kill_process(self.pid, Signal::KILL)
            }
            None => Err(Errno::SRCH),
            Some(sent) => sent,
        }
    }
}
