//! Why a lock was lost.

use serde::{Deserialize, Serialize};

/// Why a lock was lost. A closed set: label of metrics, reason of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LossReason {
    /// The deadline came before a renewal was proven.
    DeadlineReached,
    /// The ensemble reports that the session is over.
    SessionExpired,
    /// The same, while the lease was still running. The ensemble does not do that by itself: a client that reaches a
    /// server has ended the session (`docs/safety.md`). The next contender may hold at once.
    SessionEnded,
    /// A client deleted the contender, or the whole lock root. The next contender may hold at once.
    ContenderDeleted,
    /// The ensemble refuses us for good: it rejects our credentials, gives us no right on a node, or grants a session
    /// timeout that is too short. [`crate::LockStatus::refusal`] has the reason.
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
