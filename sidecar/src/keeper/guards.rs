//! The guard's connection, whichever way it came.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open, pidfd_send_signal,
};

use crate::exit::Failure;
use crate::guard::link::GuardLink;
use crate::guard::listener::{GuardEvent, GuardListener};
use crate::guard::protocol::{FromGuard, ToGuard};
use crate::socket::Tree;

/// Where the guard is.
#[derive(Debug)]
pub(super) enum Guards {
    /// The parent of this process, over a socket pair (`run`).
    Parent(Option<Parent>),
    /// Whoever connects to a socket (`sidecar`).
    Listener(Box<GuardListener>),
}

/// A guard that started us.
#[derive(Debug)]
pub(super) struct Parent {
    link: GuardLink,
    pid: Pid,
    /// Refers to that process and to no later one of the same number. None where a sandbox or an old
    /// kernel (before 5.3) has no such thing.
    process: Option<OwnedFd>,
}

/// What happened with the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Frame(FromGuard),
    /// Its connection is over.
    Lost {
        /// [`Heard::Ended`] will tell the end of its process.
        is_watched: bool,
    },
    /// Its process has ended, and with it all that it started if that is proven.
    Ended {
        is_proof: bool,
    },
    /// Another took its place, and what the one before has left behind is not known.
    Succeeded,
}

impl Parent {
    fn kill(&self) -> Result<(), Errno> {
        let sent = self
            .process
            .as_ref()
            .map(|process| pidfd_send_signal(process, Signal::KILL));
        match sent {
            // As long as it is our parent it has not ended, and the number is its own.
            None | Some(Err(Errno::NOSYS | Errno::PERM)) if getppid() == Some(self.pid) => {
                kill_process(self.pid, Signal::KILL)
            }
            None => Err(Errno::SRCH),
            Some(sent) => sent,
        }
    }
}

impl Guards {
    pub(super) fn parent(socket: UnixStream) -> Result<Self, Failure> {
        let cannot =
            |error: io::Error| Failure::software(format!("the keeper has no socket to its guard: {error}"));
        // Whoever made the socket pair. Its number may belong to another only if it is gone, and then
        // the socket says so, too.
        let guard = rustix::net::sockopt::socket_peercred(&socket).map_err(|error| cannot(error.into()))?;
        let process = pidfd_open(guard.pid, PidfdFlags::empty()).ok();
        let link = GuardLink::from_std(socket).map_err(cannot)?;
        Ok(Self::Parent(Some(Parent {
            link,
            pid: guard.pid,
            process,
        })))
    }

    pub(super) fn is_parent(&self) -> bool {
        matches!(self, Self::Parent(Some(_)))
    }

    /// The processes of an application whose guard is our parent.
    pub(super) fn tree(&self) -> Option<Tree> {
        match self {
            Self::Parent(Some(parent)) => Some(Tree {
                guard: parent.pid,
                keeper: Some(getpid()),
            }),
            _ => None,
        }
    }

    /// Kills a guard that is our parent. That it is gone shows in [`Guards::hear`].
    pub(super) fn kill(&self) {
        if let Self::Parent(Some(parent)) = self
            && let Err(error) = parent.kill()
        {
            tracing::error!(%error, "The guard does not answer, and cannot be killed");
        }
    }

    /// What happens next. To cancel it loses nothing.
    pub(super) async fn hear(&mut self) -> io::Result<Heard> {
        match self {
            Self::Parent(Some(parent)) => match parent.link.recv().await {
                Some(frame) => Ok(Heard::Frame(frame)),
                None => {
                    *self = Self::Parent(None);
                    Ok(Heard::Lost { is_watched: false })
                }
            },
            Self::Parent(None) => std::future::pending().await,
            Self::Listener(listener) => Ok(match listener.recv().await? {
                GuardEvent::Frame(frame) => Heard::Frame(frame),
                GuardEvent::Disconnected { is_watched } => Heard::Lost { is_watched },
                GuardEvent::Ended { is_proof } => Heard::Ended { is_proof },
                GuardEvent::Succeeded => Heard::Succeeded,
            }),
        }
    }

    /// Tells the guard. That it cannot be told shows in [`Guards::hear`].
    pub(super) async fn tell(&mut self, frame: ToGuard) {
        let told = match self {
            Self::Parent(Some(parent)) => parent.link.send(&frame).await,
            Self::Parent(None) => Err(io::ErrorKind::NotConnected.into()),
            Self::Listener(listener) => listener.send(&frame).await,
        };
        if let Err(error) = told {
            tracing::debug!(%error, ?frame, "Guard not told");
        }
    }
}
