//! From the queue to the status of a `DistributedLock`. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use lockkeeper_crds::ApiDuration;
use lockkeeper_crds::lock::{
    ConditionType, DistributedLockStatus, EnsembleStatus, HOLDERS_SHOWN, Holder, QUEUE_SHOWN,
    QueuedContender, Reason, Survivors, TakenFrom, Trial,
};
use lockkeeper_daemon::sentence::few;
use lockkeeper_lock::Participant;

use crate::kubernetes::pods::PodFacts;
use crate::problem::Problem;
use crate::zookeeper::queues::picture::Queue;

/// Bytes of a name that are shown: the longest one in Kubernetes has 253 (DNS subdomain), and of a revision, which has a
/// hash behind it, 264. Contenders may say more, and a status has to stay one that the API server takes.
const SHOWN: usize = 264;

/// The longest time that a contender tells of and that is shown. Any client may write more, and what does not read back as
/// an [`ApiDuration`] would make the whole object unreadable.
const LONGEST_TOLD: Duration = Duration::from_secs(24 * 3_600);

/// The end of the years of RFC 3339, 9999, in seconds: a status with a later time could not be written.
const LAST_SECOND: i64 = 253_402_300_799;

/// Whether the settings are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// They are, except for these pods, which were created with other settings.
    Outdated(Vec<String>),
    /// They are, but a rollout is held back, for this reason.
    HeldBack(String),
    NotReady(Reason, String),
}

/// What a status is made from, while the ensemble can be reached.
#[derive(Debug)]
pub struct Observation<'a> {
    /// `metadata.generation`.
    pub generation: Option<i64>,
    pub queue: &'a Queue,
    /// Its contenders in order.
    pub participants: &'a [Participant],
    pub pods: &'a BTreeMap<String, PodFacts>,
    pub readiness: Readiness,
    /// What is remembered of the last handoff of a rollout.
    pub trial: Option<Trial>,
}

/// Whether a contender holds: it is first in the queue, and it says that it holds, or it is of a kind that never says
/// so.
pub(crate) fn holds(participant: &Participant) -> bool {
    participant.is_holder && (participant.data.is_held() || participant.data.state.is_empty())
}

/// Whether the lock is about to change hands: a contender is first that has not said yet that it holds. It will say so in
/// a moment, and a status in between would only be written twice.
pub(crate) fn is_between_holders(participants: &[Participant]) -> bool {
    participants.iter().any(|one| one.is_holder && !holds(one))
}

/// The status that says what was seen. Times of transition are kept from `previous` where nothing
/// changed, so that the same observation gives the same status.
pub fn observed(
    previous: &DistributedLockStatus,
    seen: &Observation<'_>,
    now: Timestamp,
) -> DistributedLockStatus {
    let (holding, others): (Vec<_>, Vec<_>) = seen.participants.iter().partition(|one| holds(one));
    let stop_budget = holding
        .first()
        .and_then(|one| one.data.stop_budget_millis)
        .map(told);
    let holders: Vec<_> = holding
        .into_iter()
        .take(HOLDERS_SHOWN)
        .map(|one| holder(seen, one))
        .collect();
    let waiting = i32::try_from(others.len()).unwrap_or(i32::MAX);
    let queue = others
        .into_iter()
        .take(QUEUE_SHOWN)
        .map(|one| queued(seen, one))
        .collect();
    let (is_ready, ready_reason, ready_message) = match &seen.readiness {
        Readiness::Ready => ("True", Reason::Provisioned, "the lock can be taken".to_owned()),
        Readiness::Outdated(pods) => (
            "True",
            Reason::PodsOutdated,
            format!(
                "the lock can be taken; restart these pods, which were created with other settings: {}",
                few(pods)
            ),
        ),
        Readiness::HeldBack(message) => ("True", Reason::HandoffHeldBack, message.clone()),
        Readiness::NotReady(reason, message) => ("False", *reason, message.clone()),
    };
    let (is_held, held_reason, held_message) = if !holders.is_empty() {
        ("True", Reason::HeldByPods, format!("held by {}", named(&holders)))
    } else if waiting > 0 {
        let message = "a contender waits, and does not hold the lock yet".to_owned();
        ("False", Reason::NotTakenYet, message)
    } else {
        ("False", Reason::NobodyWaits, "the queue is empty".to_owned())
    };
    let connected = "the operator follows the queue".to_owned();
    let mut conditions = Conditions::new(previous, seen.generation, now);
    conditions.set(ConditionType::Ready, is_ready, ready_reason, ready_message);
    conditions.set(ConditionType::Held, is_held, held_reason, held_message);
    conditions.set(
        ConditionType::EnsembleReachable,
        "True",
        Reason::Connected,
        connected,
    );
    DistributedLockStatus {
        holders,
        waiting: Some(waiting),
        queue,
        stop_budget,
        ensemble: previous.ensemble.clone(),
        trial: seen.trial.clone(),
        fenced: previous.fenced.clone(),
        history: Vec::new(),
        observed_generation: seen.generation,
        conditions: conditions.list,
    }
}

/// The status of a lock from when it is in this ensemble. What was known of it in another one is dropped; `problem`
/// says why it is not ready yet.
pub(crate) fn claimed(
    previous: &DistributedLockStatus,
    id: &str,
    generation: Option<i64>,
    problem: Option<&Problem>,
    now: Timestamp,
) -> DistributedLockStatus {
    let mut conditions = Conditions::new(previous, generation, now);
    if let Some(problem) = problem {
        conditions.set(
            ConditionType::Ready,
            "False",
            problem.reason,
            problem.message.clone(),
        );
    }
    DistributedLockStatus {
        ensemble: Some(EnsembleStatus { id: id.to_owned() }),
        observed_generation: previous.observed_generation,
        conditions: conditions.list,
        ..DistributedLockStatus::default()
    }
}

/// What a status says where the resource is of an older release and does not keep all of it. Conditions it does keep.
pub(crate) fn resource_outdated(status: &DistributedLockStatus) -> Option<Problem> {
    let is_it = |one: &&Condition| one.reason == Reason::ResourceOutdated.as_str();
    let found = status.condition(ConditionType::Ready).filter(is_it)?;
    Some(Problem::new(Reason::ResourceOutdated, found.message.clone()))
}

/// The status while the ensemble is out of reach: what was known last, and that it may be outdated. All conditions
/// say what a user has to correct.
pub(crate) fn out_of_reach(
    previous: &DistributedLockStatus,
    generation: Option<i64>,
    problem: &Problem,
    now: Timestamp,
) -> DistributedLockStatus {
    let mut conditions = Conditions::new(previous, generation, now);
    let unknown = || {
        let message = "unknown while the ensemble cannot be reached".to_owned();
        ("Unknown", Reason::Disconnected, message)
    };
    let (ready, reason, message, observed_generation) = match problem.reason {
        Reason::Disconnected => {
            let (ready, reason, message) = unknown();
            (ready, reason, message, previous.observed_generation)
        }
        // The settings were looked at: the fault is with them, or with the ensemble that they name.
        reason => ("False", reason, problem.message.clone(), generation),
    };
    conditions.set(ConditionType::Ready, ready, reason, message);
    if problem.reason == Reason::TooManyContenders {
        let message = "unknown while the queue is not followed".to_owned();
        conditions.set(ConditionType::Held, "Unknown", problem.reason, message);
        let message = "the operator is connected".to_owned();
        conditions.set(
            ConditionType::EnsembleReachable,
            "True",
            Reason::Connected,
            message,
        );
    } else {
        let (held, reason, message) = unknown();
        conditions.set(ConditionType::Held, held, reason, message);
        let message = format!("the operator cannot reach the ensemble: {}", problem.message);
        conditions.set(ConditionType::EnsembleReachable, "False", problem.reason, message);
    }
    DistributedLockStatus {
        conditions: conditions.list,
        observed_generation,
        ..previous.clone()
    }
}

/// A time in whole seconds, as the API server stores it.
pub(crate) fn stored(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// Names of holders, for a sentence.
pub(crate) fn named(holders: &[Holder]) -> String {
    few(holders.iter().map(|holder| &holder.pod))
}

fn name(queue: &Queue, one: &Participant) -> String {
    let said = || queue.contender(&one.name)?.foreign.clone();
    match &one.data.pod {
        Some(pod) => shown(&pod.name),
        None => said().unwrap_or_else(|| shown(&one.name)),
    }
}

/// A text of a contender, without characters that make a status hard to read, and shortened.
pub(crate) fn shown(text: &str) -> String {
    let plain = |c: char| {
        if c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    let end = text.floor_char_boundary(SHOWN);
    let mut shown: String = text[..end].chars().map(plain).collect();
    if end < text.len() {
        shown.push('…');
    }
    shown
}

/// How the pod of a contender is guarded.
fn guard(seen: &Observation<'_>, one: &Participant) -> Option<String> {
    let pod = one.data.pod.as_ref()?;
    let facts = seen.pods.get(&pod.name).filter(|facts| facts.uid == pod.uid)?;
    facts.guard.map(|guard| guard.as_str().to_owned())
}

/// A time in milliseconds that a contender tells of.
fn told(millis: u64) -> ApiDuration {
    Duration::from_millis(millis).min(LONGEST_TOLD).into()
}

fn holder(seen: &Observation<'_>, one: &Participant) -> Holder {
    let since = one.data.since.as_deref();
    let since = since.and_then(|since| since.parse::<Timestamp>().ok());
    let since = since.filter(|since| (0..=LAST_SECOND).contains(&since.as_second()));
    Holder {
        pod: name(seen.queue, one),
        uid: one.data.pod.as_ref().map(|pod| shown(&pod.uid)),
        node: one.data.pod.as_ref().map(|pod| shown(&pod.node)),
        contender: shown(&one.name),
        fencing_token: one.token.0,
        since: since.map(Time),
        revision: one.data.revision.as_deref().map(shown),
        guard: guard(seen, one),
        lease_duration: one.data.lease_millis.map(told),
        taken_from: one.data.took_over.as_ref().map(|of| TakenFrom {
            pod: shown(of.pod.as_ref().map_or(&of.contender, |pod| &pod.name)),
            contender: shown(&of.contender),
            silence: told(of.silent_millis),
        }),
        survivors: one.data.survivors.map(|some| Survivors {
            processes: some.processes.filter(|count| *count > 0).map(i64::from),
            pid: some.pid.filter(|pid| *pid > 0).map(i64::from),
        }),
    }
}

fn queued(seen: &Observation<'_>, one: &Participant) -> QueuedContender {
    QueuedContender {
        pod: name(seen.queue, one),
        uid: one.data.pod.as_ref().map(|pod| shown(&pod.uid)),
        node: one.data.pod.as_ref().map(|pod| shown(&pod.node)),
        contender: shown(&one.name),
        revision: one.data.revision.as_deref().map(shown),
        guard: guard(seen, one),
    }
}

struct Conditions<'a> {
    previous: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
    list: Vec<Condition>,
}

impl<'a> Conditions<'a> {
    fn new(previous: &'a DistributedLockStatus, generation: Option<i64>, now: Timestamp) -> Self {
        Self {
            previous: &previous.conditions,
            generation,
            now,
            list: Vec::new(),
        }
    }

    fn set(&mut self, kind: ConditionType, status: &str, reason: Reason, message: String) {
        let same = self
            .previous
            .iter()
            .find(|old| old.type_ == kind.as_str() && old.status == status);
        self.list.push(Condition {
            type_: kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message,
            observed_generation: self.generation,
            // Whole seconds, as the API server stores them: otherwise the same status would differ from the stored
            // one.
            last_transition_time: same.map_or_else(
                || Time(Timestamp::from_second(self.now.as_second()).unwrap_or(self.now)),
                |old| old.last_transition_time.clone(),
            ),
        });
    }
}

#[cfg(test)]
mod tests;
