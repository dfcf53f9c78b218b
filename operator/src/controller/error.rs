//! Why a reconciliation failed.

use std::time::Duration;

use crate::controller::LOOK;
use crate::leadership::NotLeading;
use crate::zookeeper::nodes::TreeError;

/// Until what failed is tried again: up to twice this, so that many do not come at once.
const RETRY: Duration = Duration::from_secs(1);

/// An error, with its cause as its source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// This replica does not lead; the leader reconciles.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    #[error("failed to maintain the nodes of the lock")]
    Tree(#[from] TreeError),
    /// The API server, when something was read.
    #[error("failed to read {what}")]
    Read {
        what: &'static str,
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
        what: &'static str,
        #[source]
        source: kube::Error,
    },
}

// === impl Error ===

impl Error {
    /// Makes an error of a failed read.
    pub(crate) fn reading(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Read { what, source }
    }

    /// Makes an error of a failed write.
    pub(crate) fn writing(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Write { what, source }
    }

    /// Name for metrics and logs, from a closed set.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(_) => "NotLeading",
            _ if !self.is_failure() => "TriedAgain",
            Self::Tree(_) => "EnsembleFailed",
            Self::OldResource => "OldResource",
            Self::Read { .. } => "ReadFailed",
            Self::Write { .. } => "WriteFailed",
        }
    }

    /// Whether users have to know of it: the rest is over soon, or another replica's task.
    pub(crate) fn is_failure(&self) -> bool {
        // As many requests as allowed are under way in an ensemble that locks name.
        let is_busy = matches!(self, Self::Tree(TreeError::Busy));
        let is_not_leading = matches!(self, Self::NotLeading(_));
        !is_busy && !is_not_leading && !self.is_conflict() && !self.is_terminating()
    }

    /// When to try again; `None` for a replica that does not lead, which hears of it when it does.
    pub(crate) fn rest(&self) -> Option<Duration> {
        match self {
            Self::NotLeading(_) => None,
            // Its own deletion is the next that happens to it.
            _ if self.is_terminating() => Some(LOOK),
            _ => Some(RETRY.mul_f64(1.0 + fastrand::f64())),
        }
    }

    /// Whether the namespace is being deleted, so that nothing can be made in it: no failure, and over
    /// soon (`NamespaceTerminatingCause` of the API server's admission).
    fn is_terminating(&self) -> bool {
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

    /// Whether another client changed the object in between. That is no failure: the reconciliation runs again.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write { source: kube::Error::Api(status), .. } if status.is_conflict())
    }
}
