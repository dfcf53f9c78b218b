//! What a lock says of itself.

use serde::{Deserialize, Serialize};

use crate::clock::BootInstant;
use crate::error::LockError;
use crate::token::FencingToken;

/// State of one's own place in the queue. `Held`, `Suspended` and `Lost` mean what Curator says of
/// its `ConnectionState`; the difference is that `Suspended` has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockState {
    /// No place in the queue yet: no session, or the contender is being created.
    Connecting,
    /// In the queue.
    Waiting,
    /// Nobody is before us and our lease is valid.
    Held,
    /// Still inside the lease, but the connection is in doubt.
    Suspended,
    /// No longer held, and never again under this token: a new try is a new contender.
    Lost,
    /// Our contender is being deleted.
    Releasing,
    /// No place in the queue, by our own wish.
    Released,
}

impl LockState {
    /// All states, for metrics.
    pub const ALL: [Self; 7] = [
        Self::Connecting,
        Self::Waiting,
        Self::Held,
        Self::Suspended,
        Self::Lost,
        Self::Releasing,
        Self::Released,
    ];

    /// Its name, as in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connecting => "Connecting",
            Self::Waiting => "Waiting",
            Self::Held => "Held",
            Self::Suspended => "Suspended",
            Self::Lost => "Lost",
            Self::Releasing => "Releasing",
            Self::Released => "Released",
        }
    }
}

/// Why a lock was lost. A closed set: label of metrics, reason of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LossReason {
    /// The lease ended before a renewal was proven.
    DeadlineReached,
    /// The ensemble says that the session is over.
    SessionExpired,
    /// The same, while the lease was still running. The ensemble does not do that: somebody who reaches a server has
    /// ended the session (`docs/safety.md`). The next one may hold at once.
    SessionEnded,
    /// Somebody deleted the contender, or the whole lock root. The next one may hold at once.
    ContenderDeleted,
    /// The ensemble refuses us for good: our credentials or our right on a node, or it grants a session
    /// timeout that is too short. [`LockStatus::refusal`] says which.
    Refused,
}

impl LossReason {
    /// All reasons, for metrics.
    pub const ALL: [Self; 5] = [
        Self::DeadlineReached,
        Self::SessionExpired,
        Self::SessionEnded,
        Self::ContenderDeleted,
        Self::Refused,
    ];

    /// Its name, as in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeadlineReached => "DeadlineReached",
            Self::SessionExpired => "SessionExpired",
            Self::SessionEnded => "SessionEnded",
            Self::ContenderDeleted => "ContenderDeleted",
            Self::Refused => "Refused",
        }
    }
}

/// A lock at one moment, as its task publishes it after every change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStatus {
    /// The state.
    pub state: LockState,
    /// Our contender's token. A token to *hand out* only in `Held` and `Suspended`.
    pub token: Option<FencingToken>,
    /// Name of our contender below the lock root.
    pub contender: Option<String>,
    /// How many contenders are known to be before us; 0 when we hold.
    pub position: Option<usize>,
    /// End of the lease, once there is one. Whoever acts has to be done by then.
    pub lease_end: Option<BootInstant>,
    /// The session, while there is one.
    pub session: Option<i64>,
    /// The session timeout, while there is a session: the shortest one that a server has granted to it.
    pub session_timeout: Option<std::time::Duration>,
    /// In `Held`: somebody before us may still be writing, since it did not release cleanly, or since nothing can be
    /// found out about that; a resource that cannot check tokens wants a pause (`lockDelay`), at whose end
    /// [`crate::Lock::settle`] is to be called. Then it is false again.
    pub predecessor_unclean: bool,
    /// Somebody asked us through the control node to step down.
    pub yield_requested: bool,
    /// In `Lost`: why.
    pub loss: Option<LossReason>,
    /// Why the lock cannot be had: for good in `Released` and `Lost`, until somebody provides what is
    /// missing in `Connecting` ([`crate::LockOptions::provisioned`]), until a client of an unknown kind leaves
    /// the queue in `Waiting`.
    pub refusal: Option<LockError>,
}

impl LockStatus {
    /// Before the first connection.
    pub const fn new() -> Self {
        Self {
            state: LockState::Released,
            token: None,
            contender: None,
            position: None,
            lease_end: None,
            session: None,
            session_timeout: None,
            predecessor_unclean: false,
            yield_requested: false,
            loss: None,
            refusal: None,
        }
    }

    /// When whatever runs under the lock has to be gone: the end of the lease less the margin
    /// ([`crate::Timing::margin`]) for the clocks' rates and for the kernel.
    pub fn deadline(&self) -> Option<BootInstant> {
        let margin = crate::timing::margin(self.session_timeout?);
        Some(self.lease_end?.saturating_sub(margin))
    }

    /// Whether the lock is held at `now`: what is not known is not held.
    pub fn is_held(&self, now: BootInstant) -> bool {
        matches!(self.state, LockState::Held | LockState::Suspended)
            && self.lease_end.is_some_and(|end| now < end)
    }
}

impl Default for LockStatus {
    fn default() -> Self {
        Self::new()
    }
}
