//! The guard's connection, whichever way it came.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::exit::Failure;
use crate::guard::link::{GuardEvent, GuardLink, GuardListener};
use crate::guard::protocol::{FromGuard, ToGuard};

/// Where the guard is.
#[derive(Debug)]
pub(super) enum Guards {
    /// The parent of this process, over a socket pair (`run`).
    Parent(Option<GuardLink>),
    /// Whoever connects to a socket (`sidecar`).
    Listener(GuardListener),
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
        let link = GuardLink::from_std(socket)
            .map_err(|error| Failure::software(format!("the keeper has no socket to its guard: {error}")))?;
        Ok(Self::Parent(Some(link)))
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

    /// What happens next. To cancel it loses nothing.
    pub(super) async fn hear(&mut self) -> io::Result<Heard> {
        match self {
            Self::Parent(Some(link)) => match link.recv().await {
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
            Self::Parent(Some(link)) => link.send(&frame).await,
            Self::Parent(None) => Err(io::ErrorKind::NotConnected.into()),
            Self::Listener(listener) => listener.send(&frame).await,
        };
        if let Err(error) = told {
            tracing::debug!(%error, ?frame, "Guard not told");
        }
    }
}
