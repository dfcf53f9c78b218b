//! What can go wrong for good. What passes by itself (a lost connection, an election) is repaired
//! by the lock's task and shows in [`crate::LockStatus`] only.

use crate::agreement::Objection;
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
    /// The order of the contenders cannot be told any more.
    #[error(
        "the sequence numbers of contenders below {root} are used up or not unique ({contender}), so that nobody \
         can tell who is first: make a new lock root"
    )]
    OutOfNumbers {
        /// The lock root.
        root: String,
        /// The first contender that shows it.
        contender: String,
    },
    /// A node that is somebody else's to make is not there yet, or gives us no right yet. Waited for.
    #[error("{path} is not provided: {error}")]
    NotProvided {
        /// The lock root or the control node.
        path: String,
        /// The answer: `NoNode` or `NoAuth`.
        error: EnsembleError,
    },
    /// The contenders of the lock have agreed on something else than this one was told, or it cannot be read what
    /// they have agreed on. For good where the lock root is ours to make, else waited for.
    #[error("no place in the queue of {path}: {objection}")]
    NotAgreed {
        /// The lock root.
        path: String,
        /// What is wrong.
        objection: Objection,
    },
    /// A client stands in the queue of which nobody knows whether it comes first. Waited for.
    #[error(
        "{path} belongs to a client whose place in the queue cannot be told from that name: end that client, or give \
         it a lock root of its own"
    )]
    Stranger {
        /// Its node below the lock root.
        path: String,
    },
    /// The servers are those of another ensemble than the lock's. Waited for: they may lead back to it.
    #[error(
        "this is another ensemble than the lock's: {path} holds {}, and the lock is in {expected}",
        .found.map_or_else(|| "no ID".to_owned(), |found| found.to_string())
    )]
    OtherEnsemble {
        /// The node with the ID.
        path: String,
        /// What the ID has to be.
        expected: uuid::Uuid,
        /// What it is; `None` where the node holds none.
        found: Option<uuid::Uuid>,
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
