//! Events on objects, for users: a closed set of reasons.

use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::core::Status;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::metrics::Metrics;

mod kept;

use kept::Kept;

/// The reporter of the events, which the chart's policy on the operator checks.
pub const REPORTER: &str = "lockkeeper-operator";

/// Events of one look at a lock: as many as a lock with some readers has. Each is a request.
const AT_ONCE: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    LockAcquired,
    /// A pod does not hold the lock any more.
    LockReleased,
    /// A pod does not hold the lock any more, and did not release it.
    LockLost,
    /// The next pod took the place of a holder that was silent for longer than its lease duration.
    TakenOver,
    /// A process of the application outlives SIGKILL, and its pod keeps the lock.
    ApplicationSurvives,
    /// A contender was removed, since its node is out of service.
    NodeFenced,
    /// The holder was asked to step down.
    HandoffRequested,
    /// A handoff that a user has requested is not possible.
    HandoffRefused,
    /// A rollout does not go on: its revision failed under the lock.
    HandoffHeldBack,
    /// Nodes in ZooKeeper were missing, or open to others, and are in order again.
    NodesRepaired,
    /// The identity of the namespace is to be rotated, and pods do not know the one in use yet.
    RotationWaits,
    /// The object cannot be deleted while a client is in the queue.
    DeletionWaits,
    /// The object is gone, and its nodes in ZooKeeper could not be removed.
    NodesLeft,
    /// The settings do not fit together.
    InvalidSpec,
    ProvisioningFailed,
    /// The operator reaches another ensemble than the lock's.
    EnsembleChanged,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) reason: Reason,
    /// One sentence.
    pub(crate) note: String,
    /// Whom it is about, besides the lock: events about two of them are not summed up.
    pub(crate) subject: Option<Subject>,
}

/// Whom an event is about, besides a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// A pod of the lock's namespace, as a contender names it.
    Pod {
        name: String,
        /// Its UID, if that is known.
        uid: Option<String>,
    },
    /// A contender, by its name, that is of no pod.
    Contender(String),
}

pub(crate) struct Events {
    recorder: Recorder,
    /// Events by reason and lock.
    kept: Mutex<Kept>,
    /// What they name besides.
    named: Mutex<Kept>,
    metrics: Metrics,
}

// === impl Reason ===

impl Reason {
    /// As shown by `kubectl describe`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::LockAcquired => "LockAcquired",
            Self::LockReleased => "LockReleased",
            Self::LockLost => "LockLost",
            Self::TakenOver => "TakenOver",
            Self::ApplicationSurvives => "ApplicationSurvives",
            Self::NodeFenced => "NodeFenced",
            Self::HandoffRequested => "HandoffRequested",
            Self::HandoffRefused => "HandoffRefused",
            Self::HandoffHeldBack => "HandoffHeldBack",
            Self::NodesRepaired => "NodesRepaired",
            Self::RotationWaits => "RotationWaits",
            Self::DeletionWaits => "DeletionWaits",
            Self::NodesLeft => "NodesLeft",
            Self::InvalidSpec => "InvalidSpec",
            Self::ProvisioningFailed => "ProvisioningFailed",
            Self::EnsembleChanged => "EnsembleChanged",
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::LockAcquired
            | Self::LockReleased
            | Self::LockLost
            | Self::TakenOver
            | Self::ApplicationSurvives
            | Self::EnsembleChanged => "Follow",
            Self::HandoffRequested | Self::HandoffRefused | Self::HandoffHeldBack => "HandOver",
            Self::NodesRepaired | Self::ProvisioningFailed | Self::InvalidSpec => "Provide",
            Self::NodeFenced => "Release",
            Self::RotationWaits => "Rotate",
            Self::DeletionWaits | Self::NodesLeft => "Delete",
        }
    }

    const fn kind(self) -> EventType {
        match self {
            Self::LockAcquired | Self::LockReleased | Self::HandoffRequested => EventType::Normal,
            Self::HandoffRefused
            | Self::HandoffHeldBack
            | Self::LockLost
            | Self::TakenOver
            | Self::ApplicationSurvives
            | Self::NodeFenced
            | Self::NodesRepaired
            | Self::RotationWaits
            | Self::DeletionWaits
            | Self::NodesLeft
            | Self::InvalidSpec
            | Self::ProvisioningFailed
            | Self::EnsembleChanged => EventType::Warning,
        }
    }
}

/// Cause of every refusal to create an object in such a namespace (`NamespaceTerminatingCause` of Kubernetes'
/// `core/v1`).
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

fn is_of_a_namespace_that_ends(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_forbidden()
        && causes
            .into_iter()
            .any(|cause| cause.reason == NAMESPACE_TERMINATING)
}

// === impl Notice ===

impl Notice {
    pub(crate) fn new(reason: Reason, note: impl Into<String>) -> Self {
        Self {
            reason,
            note: note.into(),
            subject: None,
        }
    }

    /// The same about a pod, or about another contender.
    #[must_use]
    pub(crate) fn about(self, subject: Subject) -> Self {
        Self {
            subject: Some(subject),
            ..self
        }
    }
}

// === impl Subject ===

impl Subject {
    pub(crate) fn pod(name: impl Into<String>, uid: Option<String>) -> Self {
        Self::Pod {
            name: name.into(),
            uid,
        }
    }

    /// The object that an event about a lock has to do with, too.
    fn reference(&self, lock: &ObjectReference) -> ObjectReference {
        match self {
            Self::Pod { name, uid } => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: lock.namespace.clone(),
                name: Some(name.clone()),
                uid: uid.clone(),
                ..ObjectReference::default()
            },
            // It is a part of the lock.
            Self::Contender(name) => ObjectReference {
                field_path: Some(format!("contenders{{{name}}}")),
                ..lock.clone()
            },
        }
    }
}

// === impl Events ===

impl Events {
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        Self {
            recorder: Recorder::new(client, Reporter::from(REPORTER)),
            kept: Mutex::new(Kept::within(kept::OF_NAMESPACE, kept::IN_ALL)),
            named: Mutex::new(Kept::within(kept::NAMED_OF_NAMESPACE, kept::NAMED_IN_ALL)),
            metrics,
        }
    }

    /// Publishes events about a lock, best effort: nothing depends on an event.
    pub(crate) async fn tell(&self, notices: &[Notice], lock: &ObjectReference) {
        for notice in notices.iter().take(AT_ONCE) {
            self.tell_one(notice, lock).await;
        }
        if let Some(left_out @ 1..) = notices.len().checked_sub(AT_ONCE) {
            tracing::info!(
                namespace = lock.namespace,
                lock = lock.name,
                left_out,
                "Left out events about a lock: there are too many at once"
            );
        }
    }

    async fn tell_one(&self, notice: &Notice, lock: &ObjectReference) {
        let reason = notice.reason.as_str();
        let namespace = lock.namespace.as_deref().unwrap_or_default();
        // A lock that is made anew is another object.
        let of_lock = (reason, &lock.name, &lock.uid);
        if !allows(&self.kept, namespace, of_lock) {
            tracing::debug!(
                namespace,
                lock = lock.name,
                reason,
                "Left out an event: there are too many"
            );
            return;
        }
        let may_be_named = |subject: &&Subject| allows(&self.named, namespace, (of_lock, *subject));
        let subject = notice.subject.as_ref().filter(may_be_named);
        let event = Event {
            type_: notice.reason.kind(),
            reason: reason.to_owned(),
            note: Some(notice.note.clone()),
            action: notice.reason.action().to_owned(),
            secondary: subject.map(|subject| subject.reference(lock)),
        };
        self.metrics.wrote("event");
        match self.recorder.publish(&event, lock).await {
            Ok(()) => {}
            // A namespace that is being deleted takes no events.
            Err(kube::Error::Api(status)) if is_of_a_namespace_that_ends(&status) => {
                tracing::debug!(%status, reason, "Left out an event: its namespace is being deleted");
            }
            Err(error) => tracing::warn!(%error, reason, "Failed to publish an event"),
        }
    }
}

/// Whether there is room for an event that is told apart by `what`.
fn allows(kept: &Mutex<Kept>, namespace: &str, what: impl Hash) -> bool {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.allows(namespace, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_in_a_namespace_that_is_going_is_told_apart_from_one_that_may_not_be_written() {
        let status = |causes: &str| -> Status {
            let status = format!(
                r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","reason":"Forbidden",
                    "message":"events.events.k8s.io \"report.18\" is forbidden","code":403,
                    "details":{{"name":"report.18","group":"events.k8s.io","kind":"events","causes":[{causes}]}}}}"#
            );
            serde_json::from_str(&status).unwrap()
        };
        let going = r#"{"reason":"NamespaceTerminating","message":"","field":"metadata.namespace"}"#;
        assert!(is_of_a_namespace_that_ends(&status(going)));
        assert!(!is_of_a_namespace_that_ends(&status("")));
    }
}
