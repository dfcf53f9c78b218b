//! The keeper's end of the socket: a guard that is its parent, or the guards that connect to a path.

mod connection;
mod listener;
mod outbox;
mod parent;

use std::os::unix::net::UnixStream;
use std::path::Path;

use lockkeeper_daemon::exit::Failure;
use rustix::process::Pid;

pub use self::connection::Heard;
pub use self::listener::GuardListener;
use self::parent::Parent;
use super::protocol::{Hello, Refusal, ToGuard};
use crate::peer::Users;
use crate::time_namespace;

/// Where the guard is.
#[derive(Debug)]
pub(crate) enum KeeperEnd {
    /// It is the parent of this process, over a socket pair. `None` when the connection is over.
    Parent(Option<Parent>),
    /// It connects to a path.
    Listener(Box<GuardListener>),
}

/// What a guard is told whose clock is not ours: no moment of one means anything to the other.
fn refused_for_its_clock(hello: &Hello) -> Option<ToGuard> {
    if hello.clock == time_namespace::own() {
        return None;
    }
    tracing::error!(
        pid = hello.pid,
        "A guard in another time namespace (time_namespaces(7)) was refused: its clock is not ours"
    );
    let why = Refusal::Clock;
    Some(ToGuard::Refuse { why })
}

impl KeeperEnd {
    /// Over the socket pair that this process shares with the guard, its parent.
    ///
    /// # Errors
    /// When the socket is no such pair.
    pub(crate) fn parent(socket: UnixStream) -> Result<Self, Failure> {
        Parent::new(socket)
            .map(|parent| Self::Parent(Some(parent)))
            .map_err(|error| Failure::software(format!("the keeper has no socket to its guard: {error}")))
    }

    /// Over a socket that is made at `path`, for guards of these users.
    ///
    /// # Errors
    /// As [`GuardListener::bind`].
    pub(crate) fn listen(path: &Path, users: Users) -> Result<Self, Failure> {
        GuardListener::bind(path, users).map(|listener| Self::Listener(Box::new(listener)))
    }

    /// The process id of a guard that is our parent.
    pub(crate) fn parent_pid(&self) -> Option<Pid> {
        match self {
            Self::Parent(Some(parent)) => Some(parent.pid()),
            _ => None,
        }
    }

    /// Whether the guard that started us is still our parent, so that its process id is still its own.
    pub(crate) fn has_parent(&self) -> bool {
        matches!(self, Self::Parent(Some(parent)) if parent.is_our_parent())
    }

    /// Kills a guard that is our parent. [`KeeperEnd::hear`] reports its end.
    pub(crate) fn kill(&self) {
        if let Self::Parent(Some(parent)) = self
            && let Err(error) = parent.kill()
        {
            tracing::error!(%error, "The guard does not answer, and cannot be killed");
        }
    }

    /// The next event. Cancel-safe.
    pub(crate) async fn hear(&mut self) -> Heard {
        match self {
            Self::Parent(Some(parent)) => match parent.recv().await {
                Some(frame) => Heard::Frame(frame),
                None => {
                    *self = Self::Parent(None);
                    Heard::Lost { is_watched: false }
                }
            },
            Self::Parent(None) => std::future::pending().await,
            Self::Listener(listener) => listener.recv().await,
        }
    }

    /// Sends a frame to the guard, now or as soon as it reads. If it is gone, [`KeeperEnd::hear`] reports that.
    pub(crate) fn tell(&mut self, frame: ToGuard) {
        match self {
            Self::Parent(Some(parent)) => parent.send(frame),
            Self::Parent(None) => {}
            Self::Listener(listener) => listener.send(frame),
        }
    }
}
