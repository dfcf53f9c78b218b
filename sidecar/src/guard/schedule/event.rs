//! What happens to a guard, and the kinds of guards.

use super::actions::{Action, Actions, Sight};
use crate::link::protocol::ToGuard;

/// The kind of guard, as far as its decisions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// PID 1 of the application's container: its own exit ends everything.
    Pid1,
    /// Parent of an anchor, which is the parent of the application.
    Subreaper,
    /// Beside a container that it does not start.
    Container,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Tick,
    Frame(ToGuard),
    KeeperConnected,
    KeeperLost {
        /// Another keeper is started in its place.
        returns: bool,
    },
    /// `exec` of the application succeeded.
    Started {
        /// Its number; 0 for a container.
        pid: u32,
    },
    /// `exec` of the application failed.
    StartFailed {
        /// Why, as of `errno(3)`.
        errno: u32,
    },
    MainExited {
        /// As a shell counts.
        code: u8,
    },
    /// Some child has ended: a good moment to look again.
    ChildEnded,
    Saw(Sight),
    /// A signal came in; `to_group` when a terminal sent it to the application as well.
    Signal {
        signo: u8,
        /// The application got it as well.
        to_group: bool,
    },
}

impl Mode {
    /// Removes the lease file, so that no kubelet starts what is stopped now. The keeper does the same, if it can.
    pub(super) fn remove_lease(self, out: &mut Actions) {
        if self == Self::Container {
            out.push(Action::RemoveLease);
        }
    }
}
