//! The guard's connection, whichever way it came.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::exit::Failure;
use crate::guard::link::{GuardEvent, GuardLink, GuardListener};
use crate::guard::protocol::{FromGuard, ToGuard};

/// Where the guard is.
#[derive(Debug)]
pub(super) enum Guards {
    /// The parent of this process, over a socket pair (`run`).
    Parent(Option<Parent>),
    /// Whoever connects to a socket (`sidecar`).
    Listener(GuardListener),
}

/// A guard that started us.
#[derive(Debug)]
pub(super) struct Parent {
    link: GuardLink,
    /// Refers to that process and to no later one of the same number.
    process: OwnedFd,
}

/// What happened with the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Frame(FromGuard),
    /// Its connection is over, or another took its place: its `Hello` follows then.
    Lost,
}

impl Guards {
    pub(super) fn parent(socket: UnixStream) -> Result<Self, Failure> {
        let cannot =
            |error: io::Error| Failure::software(format!("the keeper has no socket to its guard: {error}"));
        // Whoever made the socket pair. Its number may belong to another only if it is gone, and then
        // the socket says so, too.
        let guard = rustix::net::sockopt::socket_peercred(&socket).map_err(|error| cannot(error.into()))?;
        let process = pidfd_open(guard.pid, PidfdFlags::empty()).map_err(|error| cannot(error.into()))?;
        let link = GuardLink::from_std(socket).map_err(cannot)?;
        Ok(Self::Parent(Some(Parent { link, process })))
    }

    pub(super) fn listen(path: &Path) -> Result<Self, Failure> {
        // The guard runs as the application's user. Who may be it is decided by who can reach the
        // directory, which only the keeper and the guarded container see.
        let listener = GuardListener::bind(path, 0o666).map_err(|error| {
            Failure::unavailable(format!(
                "cannot make the guard's socket {}: {error}",
                path.display()
            ))
        })?;
        Ok(Self::Listener(listener))
    }

    pub(super) fn is_parent(&self) -> bool {
        matches!(self, Self::Parent(Some(_)))
    }

    /// Kills a guard that is our parent. That it is gone shows in [`Guards::hear`].
    pub(super) fn kill(&self) {
        if let Self::Parent(Some(parent)) = self
            && let Err(error) = pidfd_send_signal(&parent.process, Signal::KILL)
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
                    Ok(Heard::Lost)
                }
            },
            Self::Parent(None) => std::future::pending().await,
            Self::Listener(listener) => Ok(match listener.recv().await? {
                GuardEvent::Frame(frame) => Heard::Frame(frame),
                GuardEvent::Connected | GuardEvent::Disconnected => Heard::Lost,
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
