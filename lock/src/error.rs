//! Permanent failures. The lock's task repairs passing ones (a lost connection, an election), which show in
//! [`crate::LockStatus`] only.

use crate::agreement::Objection;
use crate::ensemble::EnsembleError;
use crate::timing::UnsafeTiming;

/// Why a lock cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The ensemble refuses the request, and would refuse it again.
    #[error("{action}: {error}")]
    Refused {
        /// What was tried, with the path.
        action: String,
        /// What the ensemble answered.
        error: EnsembleError,
    },
    /// The servers grant a session timeout that does not fit the other times.
    #[error("the servers grant a session timeout of {granted:?}: {unsafe_timing}")]
    Timing {
        /// The session timeout as negotiated.
        granted: std::time::Duration,
        /// The arithmetic that shows it.
        unsafe_timing: UnsafeTiming,
    },
    /// The order of the contenders is unknown from now on.
    #[error(
        "the sequence numbers of contenders below {root} are used up or not unique ({contender}), so that \
         their order is unknown: make a new lock root"
    )]
    OutOfNumbers {
        /// Path of the lock root.
        root: String,
        /// The first contender that shows it.
        contender: String,
    },
    /// A node that another client has to create is missing, or gives us no right yet. The task waits for it.
    #[error("{path} is not provided: {error}")]
    NotProvided {
        /// The lock root or the control node.
        path: String,
        /// The answer: `NoNode` or `NoAuth`.
        error: EnsembleError,
    },
    /// The contenders of the lock have agreed on another setting than ours, or their agreement cannot be read. Final if
    /// we create the lock root ourselves; otherwise the task waits.
    #[error("no place in the queue of {path}: {objection}")]
    NotAgreed {
        /// Path of the lock root.
        path: String,
        /// How the agreement differs from our setting, or why it cannot be read.
        objection: Objection,
    },
    /// A client in the queue may or may not come before us. The task waits for it to leave.
    #[error(
        "{path} belongs to a client of an unknown kind, so its name does not show its place in the queue: stop that \
         client, or give it a lock root of its own"
    )]
    Stranger {
        /// Its node below the lock root.
        path: String,
    },
    /// A child of the lock root may not be read, so it may be a client that comes before us. The task waits for its end.
    #[error(
        "we have no right to read {path}, and it may belong to a client that is before us: give the contenders of this \
         lock the right to read it, stop that client, or give it a lock root of its own"
    )]
    Unreadable {
        /// Path of the child.
        path: String,
    },
    /// The servers belong to another ensemble than the lock's. The task waits: their names may lead to the right one
    /// later.
    #[error(
        "this is another ensemble than the lock's: {path} holds {}, and the lock is in {expected}",
        .found.map_or_else(|| "no ID".to_owned(), |found| found.to_string())
    )]
    OtherEnsemble {
        /// The node with the ID.
        path: String,
        /// What the ID has to be.
        expected: uuid::Uuid,
        /// The ID that it holds; `None` if the node holds none.
        found: Option<uuid::Uuid>,
    },
    /// The lock was lost before this could be done.
    #[error("the lock was lost: {}", .0.name())]
    Lost(crate::loss::LossReason),
    /// We neither hold the lock nor wait for it.
    #[error("not in the queue")]
    NotQueued,
    /// The lock's task has ended: it was abandoned.
    #[error("the lock was abandoned")]
    Abandoned,
}
