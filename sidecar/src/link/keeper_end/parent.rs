//! A guard that is the parent of the keeper.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getppid, kill_process, pidfd_open, pidfd_send_signal};

use super::connection::Connection;
use super::refused_for_its_clock;
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

    /// As [`Connection::recv`]. A guard whose clock is not ours is refused, and that is the end: before Linux 6.3 a program
    /// that `unshare --time` starts keeps the clock that it had, and its children, of which the keeper is one, have the other
    /// one.
    pub(super) async fn recv(&mut self) -> Option<FromGuard> {
        let frame = self.connection.recv().await?;
        if let FromGuard::Hello(hello) = &frame
            && let Some(refusal) = refused_for_its_clock(hello)
        {
            self.connection.send(refusal);
            return None;
        }
        Some(frame)
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;
    use crate::link::protocol::{Containment, Hello, Refusal};
    use crate::time_namespace;

    #[tokio::test]
    async fn a_parent_whose_clock_is_another_one_is_refused() {
        let own = time_namespace::own();
        for (clock, is_taken) in [(own, true), (own + 1, false)] {
            let (ours, mut guard) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let mut parent = Parent::new(ours).unwrap();
            let hello = Hello {
                pid: 1,
                instance: 1,
                is_first: false,
                tree: None,
                has_ticket: false,
                containment: Containment::Sweep,
                clock,
            };
            guard.write_all(&FromGuard::Hello(hello).encode()).unwrap();
            assert_eq!(parent.recv().await.is_some(), is_taken);
            if !is_taken {
                guard.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let why = Refusal::Clock;
                let expected = ToGuard::Refuse { why }.encode();
                let mut word = vec![0; expected.len()];
                guard.read_exact(&mut word).unwrap();
                assert_eq!(word[..], expected[..]);
            }
        }
    }
}
