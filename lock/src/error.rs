//! What can go wrong for good. What passes by itself (a lost connection, an election) is repaired
//! by the lock's task and shows in [`crate::LockStatus`] only.

use crate::ensemble::EnsembleError;
use crate::timing::UnsafeTiming;

/// Why a lock cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The ensemble refuses, and would refuse again.
    #[error("{action}: {error}")]
    Refused {
        /// What was tried, with the path.
        action: String,
        /// The answer.
        error: EnsembleError,
    },
    /// The servers grant a session timeout with which the times do not fit together.
    #[error("the servers grant a session timeout of {granted:?}: {unsafe_timing}")]
    Timing {
        /// The session timeout as negotiated.
        granted: std::time::Duration,
        /// The arithmetic.
        unsafe_timing: UnsafeTiming,
    },
    /// A node that is somebody else's to make is not there yet, or gives us no right yet. Waited for.
    #[error("{path} is not provided: {error}")]
    NotProvided {
        /// The lock root or the control node.
        path: String,
        /// The answer: `NoNode` or `NoAuth`.
        error: EnsembleError,
    },
    /// The lock was lost before this could be done.
    #[error("the lock was lost: {}", .0.name())]
    Lost(crate::state::LossReason),
    /// The lock is neither held nor waited for.
    #[error("not in the queue")]
    NotQueued,
    /// The lock's task has ended: it was abandoned.
    #[error("the lock was abandoned")]
    Abandoned,
}
