//! Whether the lock is to change hands because of a rollout. Pure.
//!
//! The lock goes from a pod that is not of the workload's current revision to one that is, and never
//! the other way. Age plays no part: a Deployment adds pods to old ReplicaSets during a rollout, and
//! a rollback makes an old revision the current one. So nothing can go back and forth.

use std::time::Duration;

pub(crate) mod trial;

/// A workload in the middle of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rollout {
    /// Its pods in the queue, in the order of the queue.
    pub(crate) queue: Vec<Candidate>,
    pub(crate) workload: Workload,
    /// How long the next handoff has to wait: since the last one not enough time has passed.
    pub(crate) rest: Duration,
}

/// A workload as it is now, read for this decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Deployment {
        is_paused: bool,
        /// `pod-template-hash` of the ReplicaSet with the highest `deployment.kubernetes.io/revision`.
        current: Option<String>,
    },
    StatefulSet {
        /// `spec.updateStrategy.type` is `OnDelete`.
        is_on_delete: bool,
        /// `spec.ordinals.start` + `spec.updateStrategy.rollingUpdate.partition`: pods below stay old.
        first_updated: i32,
        /// `status.updateRevision`.
        current: Option<String>,
    },
    DaemonSet {
        /// `spec.updateStrategy.type` is `OnDelete`.
        is_on_delete: bool,
        /// `controller-revision-hash` of the ControllerRevision with the highest revision.
        current: Option<String>,
    },
}

/// One in the queue that is a pod of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Name below the lock root.
    pub(crate) contender: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    /// Its revision: `pod-template-hash` or `controller-revision-hash`.
    pub(crate) revision: String,
    pub(crate) is_holder: bool,
    /// Whether it could run the application at once: it is not being deleted, and its containers are up.
    pub(crate) is_healthy: bool,
    /// How often its application's container has ended.
    pub(crate) ends: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Stay,
    /// These contenders are to step down, so that this pod gets the lock.
    Yield {
        /// Names below the lock root: the holder, and the other contenders before the successor.
        contenders: Vec<String>,
        /// The pod that is to hold next.
        successor: Candidate,
    },
}

// === impl Workload ===

impl Workload {
    /// The revision that the user wants.
    pub(crate) fn current(&self) -> Option<&str> {
        match self {
            Self::Deployment { current, .. }
            | Self::StatefulSet { current, .. }
            | Self::DaemonSet { current, .. } => current.as_deref(),
        }
    }

    /// Whether the user has asked that nothing moves.
    fn is_held_back(&self) -> bool {
        match self {
            Self::Deployment { is_paused, .. } => *is_paused,
            Self::StatefulSet { is_on_delete, .. } | Self::DaemonSet { is_on_delete, .. } => *is_on_delete,
        }
    }

    /// Whether the user wants this pod to stay at the old revision.
    fn stays_old(&self, pod: &str) -> bool {
        match self {
            Self::StatefulSet { first_updated, .. } => ordinal(pod).is_some_and(|at| at < *first_updated),
            Self::Deployment { .. } | Self::DaemonSet { .. } => false,
        }
    }
}

fn ordinal(pod: &str) -> Option<i32> {
    pod.rsplit_once('-')?.1.parse().ok()
}

/// Whether the workload has to be read: a healthy pod waits whose revision differs from the holder's.
pub(crate) fn is_mixed(queue: &[Candidate]) -> bool {
    let differs = |holder: &Candidate| {
        let waits = |one: &&Candidate| !one.is_holder && one.is_healthy;
        queue
            .iter()
            .filter(waits)
            .any(|one| one.revision != holder.revision)
    };
    queue.iter().filter(|one| one.is_holder).any(differs)
}

/// The contenders that are to step down. `queue` has the pods of this workload in the order of the queue.
///
/// One holder is moved at a time, also of a semaphore: the next one follows when the first has gone.
pub(crate) fn decide(queue: &[Candidate], workload: &Workload) -> Decision {
    let Some(current) = workload.current() else {
        return Decision::Stay;
    };
    if workload.is_held_back() {
        return Decision::Stay;
    }
    let is_old = |one: &&Candidate| one.revision != current;
    let holder = queue.iter().find(|one| one.is_holder && is_old(one));
    let successor = queue
        .iter()
        .position(|one| !one.is_holder && one.is_healthy && !is_old(&one));
    let (Some(holder), Some(successor)) = (holder, successor) else {
        return Decision::Stay;
    };
    if workload.stays_old(&holder.pod) {
        return Decision::Stay;
    }
    // A contender that waits before the successor would get the lock first: old revisions, and pods that
    // could not run it.
    let before = queue[..successor].iter().filter(|one| !one.is_holder);
    Decision::Yield {
        contenders: std::iter::once(holder)
            .chain(before)
            .map(|one| one.contender.clone())
            .collect(),
        successor: queue[successor].clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `*` holds, `!` is not healthy, `@` the revision: `a@1* b@2`.
    fn queue(text: &str) -> Vec<Candidate> {
        text.split_whitespace()
            .map(|word| {
                let (pod, rest) = word.split_once('@').unwrap();
                Candidate {
                    contender: format!("c-{pod}"),
                    pod: pod.to_owned(),
                    uid: format!("u-{pod}"),
                    ends: 0,
                    revision: rest.trim_end_matches(['*', '!']).to_owned(),
                    is_holder: rest.contains('*'),
                    is_healthy: !rest.contains('!'),
                }
            })
            .collect()
    }

    fn deployment(current: &str) -> Workload {
        Workload::Deployment {
            is_paused: false,
            current: Some(current.to_owned()),
        }
    }

    fn stateful_set(first_updated: i32, is_on_delete: bool) -> Workload {
        Workload::StatefulSet {
            is_on_delete,
            first_updated,
            current: Some("2".to_owned()),
        }
    }

    fn daemon_set(is_on_delete: bool) -> Workload {
        Workload::DaemonSet {
            is_on_delete,
            current: Some("2".to_owned()),
        }
    }

    /// The contenders that step down, and their successor: `c-a c-b > d`, or nothing.
    fn decided(text: &str, workload: &Workload) -> String {
        match decide(&queue(text), workload) {
            Decision::Stay => String::new(),
            Decision::Yield {
                contenders,
                successor,
            } => format!("{} > {}", contenders.join(" "), successor.pod),
        }
    }

    #[test]
    fn the_lock_goes_forward_to_the_current_revision_and_never_back() {
        for (name, queue, current, expected) in [
            ("forward", "a@1* b@2", "2", "c-a > b"),
            ("no pod of the new revision waits", "a@1* b@1", "2", ""),
            ("the holder is current", "a@2* b@2", "2", ""),
            (
                "an old pod waits behind a current holder, as at a scale-up",
                "a@2* b@1 c@1",
                "2",
                "",
            ),
            (
                "rollback: the old revision is current again",
                "a@2* b@1",
                "1",
                "c-a > b",
            ),
            ("after the rollback", "b@1* a@2", "1", ""),
            ("old waiters step aside first", "a@1* b@1 c@2", "2", "c-a c-b > c"),
            ("two roll-outs at once", "a@1* b@2 c@3", "3", "c-a c-b > c"),
            (
                "the first of several successors",
                "a@1* b@2 c@2 d@1",
                "2",
                "c-a > b",
            ),
            (
                "a successor that cannot run it is passed over",
                "a@1* b@2! c@2",
                "2",
                "c-a c-b > c",
            ),
            ("no healthy successor", "a@1* b@2!", "2", ""),
            ("no pod holds", "a@1 b@2", "2", ""),
            ("an empty queue", "", "2", ""),
            ("a semaphore, one at a time", "a@1* b@1* c@2 d@2", "2", "c-a > c"),
            ("a semaphore, half done", "b@1* c@2* d@2 a@1", "2", "c-b > d"),
            ("a semaphore, done", "c@2* d@2* a@1 b@1", "2", ""),
        ] {
            assert_eq!(decided(queue, &deployment(current)), expected, "{name}");
        }
    }

    #[test]
    fn carried_out_to_the_end_a_rollout_settles() {
        // In every queue: a contender that steps down goes to its end, and after at most one step a holder is of the
        // current revision.
        for start in ["a@1* b@1 c@2", "a@1* b@2 c@1 d@2", "a@3* b@1 c@2"] {
            let mut queue = queue(start);
            let mut steps = 0;
            while let Decision::Yield { contenders, .. } = decide(&queue, &deployment("2")) {
                let (mut gone, mut rest): (Vec<_>, Vec<_>) = queue
                    .drain(..)
                    .partition(|one| contenders.contains(&one.contender));
                gone.iter_mut().for_each(|one| one.is_holder = false);
                rest.append(&mut gone);
                rest[0].is_holder = true;
                queue = rest;
                steps += 1;
                assert!(steps <= 1, "{start}");
            }
            assert_eq!(queue[0].revision, "2", "{start}");
        }
    }

    #[test]
    fn what_the_user_holds_back_stays() {
        let paused = Workload::Deployment {
            is_paused: true,
            current: Some("2".to_owned()),
        };
        let unknown = Workload::Deployment {
            is_paused: false,
            current: None,
        };
        for (name, queue, workload, expected) in [
            ("a paused Deployment", "a@1* b@2", paused, ""),
            ("a Deployment without ReplicaSets", "a@1* b@2", unknown, ""),
            (
                "a StatefulSet",
                "s-1@1* s-2@2",
                stateful_set(0, false),
                "c-s-1 > s-2",
            ),
            ("below the partition", "s-1@1* s-2@2", stateful_set(2, false), ""),
            (
                "above the partition",
                "s-3@1* s-4@2",
                stateful_set(2, false),
                "c-s-3 > s-4",
            ),
            ("StatefulSet, OnDelete", "s-1@1* s-2@2", stateful_set(0, true), ""),
            ("a DaemonSet", "d-x@1* d-y@2", daemon_set(false), "c-d-x > d-y"),
            ("DaemonSet, OnDelete", "d-x@1* d-y@2", daemon_set(true), ""),
        ] {
            assert_eq!(decided(queue, &workload), expected, "{name}");
        }
    }

    #[test]
    fn a_workload_is_only_read_when_revisions_differ() {
        assert!(is_mixed(&queue("a@1* b@2")));
        assert!(!is_mixed(&queue("a@1* b@1")));
        assert!(!is_mixed(&queue("a@1* b@2!")));
        assert!(!is_mixed(&queue("a@1 b@2")));
    }
}
