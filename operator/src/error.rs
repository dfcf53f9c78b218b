//! Why a reconciliation did not come to its end.

use lockkeeper_crds::lock::Reason;

use crate::leader::NotLeading;
use crate::tree::TreeError;

/// Something that people have to mend, for a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One of the closed set.
    pub reason: Reason,
    /// One sentence.
    pub message: String,
}

/// An error, with its cause as its source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another replica leads: it does this.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The ensemble.
    #[error("failed to look after the nodes of the lock")]
    Tree(#[from] TreeError),
    /// The API server, when something was read.
    #[error("failed to read {what}")]
    Read {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// The resource is of an older release, and does not keep what the operator writes.
    #[error(
        "the resource DistributedLock is of an older release than the operator: upgrade the chart lockkeeper-crds"
    )]
    OldResource,
    /// The API server, when something was written.
    #[error("failed to write {what}")]
    Write {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        source: kube::Error,
    },
}

// === impl Problem ===

impl Problem {
    /// With this reason and sentence.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

// === impl Error ===

impl Error {
    /// Makes an error of a failed read.
    pub fn reading(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Read { what, source }
    }

    /// Makes an error of a failed write.
    pub fn writing(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Write { what, source }
    }

    /// Name for metrics and logs, from a closed set.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(_) => "NotLeading",
            Self::Tree(_) => "EnsembleFailed",
            Self::OldResource => "OldResource",
            Self::Read { .. } => "ReadFailed",
            Self::Write { .. } => "WriteFailed",
        }
    }

    /// Whether the namespace is being deleted, so that nothing can be made in it: no failure, and over
    /// soon (`NamespaceTerminatingCause` of the API server's admission).
    pub fn is_terminating(&self) -> bool {
        let Self::Write {
            source: kube::Error::Api(status),
            ..
        } = self
        else {
            return false;
        };
        let details = status.details.iter();
        let mut causes = details.flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// Whether somebody else changed the object in between: no failure, only to be done again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Write { source: kube::Error::Api(status), .. } if status.is_conflict())
    }
}
