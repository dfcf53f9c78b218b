//! The outcomes of requests about nodes.

use lockkeeper_lock::Agreement;
use serde::{Deserialize, Serialize};
use zookeeper_client::Error;

/// Longest rights and data that are sent in one request, in bytes: half of what a server reads (`jute.maxbuffer`, 1 MB).
/// It closes the connection at a longer one, and that is the one on which all locks are followed.
pub(super) const LONGEST_REQUEST: usize = 512 << 10;

/// What had to be done for a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Nodes that were missing.
    pub made: usize,
    /// Nodes that had other rights.
    pub rights: usize,
}

/// The outcome of the removal of a lock, or of one child of its root. A later variant is the greater obstacle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removal {
    /// Nothing of it is left.
    Done,
    /// Some of what was below its root is gone, and more is there: it takes another try.
    Goes,
    /// A child that is no place in the queue stays, and so do the lock's nodes: which child, and why.
    Left(String),
    /// A contender is in its queue.
    InUse,
}

/// The outcome of a change of the agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreed {
    Done,
    /// A contender is in the queue, and the former agreement stays.
    Pending {
        /// What that is, if it can be read.
        before: Option<Agreement>,
    },
}

/// How a former holder ended, by the records of clean releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It released the lock by itself.
    Released,
    /// It released the lock, and was asked to step down.
    HandedOver,
    /// It did not release.
    Lost,
    /// The records do not reach back to it.
    Unknown,
}

/// What could not be done to the tree.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TreeError {
    /// A node belongs to another identity.
    #[error(
        "there is no right to {path} for the identity in use: delete the node, or give the right with setAcl"
    )]
    Foreign { path: String },
    /// The ensemble is reached by another process, which is gone, or failed to do it.
    #[error("{0}")]
    Away(String),
    /// As many requests as allowed are under way in an ensemble that locks name.
    #[error("the ensemble has not answered earlier requests yet")]
    Busy,
    /// It would take a longer request than servers read.
    #[error(
        "the rights to {path} take {bytes} bytes, and the operator sends at most {LONGEST_REQUEST}: leave fewer \
         identities in the Secret"
    )]
    TooLong { path: String, bytes: usize },
    /// Anything else, mostly a lost connection.
    #[error("failed to maintain {path}: {error}")]
    Failed { path: String, error: Error },
}

pub(super) fn failed(path: &str, error: Error) -> TreeError {
    TreeError::new(path, error)
}

impl TreeError {
    /// What came of a request about a node.
    pub(crate) fn new(path: &str, error: Error) -> Self {
        let path = path.to_owned();
        match error {
            Error::NoAuth => Self::Foreign { path },
            error => Self::Failed { path, error },
        }
    }
}
