//! Whether a revision got the lock in a rollout and failed under it. Pure.
//!
//! A pod that waits is healthy as soon as its guard runs: its application was never started. So the handoff to a
//! revision is a trial. If the application's container ends and the lock goes back to another revision, there is no
//! second trial: otherwise the operator would again and again stop an application that works for one that does not.

use std::collections::BTreeMap;

use lockkeeper_crds::lock::Trial;
use lockkeeper_lock::Participant;

use super::{Candidate, Rollout};
use crate::controller::status::holds;
use crate::kubernetes::pods::PodFacts;

/// The trial that begins with the handoff to this pod.
pub(crate) fn begun(successor: &Candidate) -> Trial {
    Trial {
        revision: successor.revision.clone(),
        pod: successor.pod.clone(),
        uid: successor.uid.clone(),
        ends: successor.ends,
        has_failed: false,
    }
}

/// What is to be remembered of a trial now; nothing when the user wants another revision, or no pod of this one is left.
pub(crate) fn judged(
    trial: &Trial,
    participants: &[Participant],
    pods: &BTreeMap<String, PodFacts>,
    rollout: Option<&Rollout>,
) -> Option<Trial> {
    let revision = Some(trial.revision.as_str());
    if !pods.values().any(|facts| facts.revision.as_deref() == revision) {
        return None;
    }
    // Several workloads may stand behind one lock: it says nothing that another one wants another revision.
    let is_given_up = rollout.is_some_and(|rollout| {
        let mut queue = rollout.queue.iter();
        queue.any(|one| one.revision == trial.revision) && rollout.workload.current() != revision
    });
    if is_given_up {
        return None;
    }
    let pod = pods.get(&trial.pod).filter(|facts| facts.uid == trial.uid);
    let has_ended = pod.is_some_and(|facts| facts.ends > trial.ends);
    Some(Trial {
        has_failed: trial.has_failed || (has_ended && is_elsewhere(trial, participants, pods)),
        ..trial.clone()
    })
}

/// The contender of this revision that holds.
pub(crate) fn holder<'a>(
    trial: &Trial,
    participants: &'a [Participant],
    pods: &BTreeMap<String, PodFacts>,
) -> Option<&'a str> {
    let mut holding = holding(participants, pods);
    let (contender, _) = holding.find(|(_, revision)| *revision == trial.revision)?;
    Some(contender)
}

/// Why nothing is handed over by itself, and what is to be done. Nothing to say while this revision holds the lock.
pub(crate) fn held_back(
    trial: &Trial,
    participants: &[Participant],
    pods: &BTreeMap<String, PodFacts>,
) -> Option<String> {
    (trial.has_failed && is_elsewhere(trial, participants, pods)).then(|| {
        format!(
            "the application of {}, which is of the new revision {}, ended after it had got the lock, so the lock stays with \
             another revision: roll out one that works, or roll back; to try this one again, run `kubectl lockkeeper handoff`",
            trial.pod, trial.revision
        )
    })
}

/// Whether a pod of another revision holds.
fn is_elsewhere(trial: &Trial, participants: &[Participant], pods: &BTreeMap<String, PodFacts>) -> bool {
    holding(participants, pods).any(|(_, revision)| revision != trial.revision)
}

/// The holders: contender, and revision of the pod.
fn holding<'a, 'b>(
    participants: &'a [Participant],
    pods: &'b BTreeMap<String, PodFacts>,
) -> impl Iterator<Item = (&'a str, &'b str)> {
    let holding = participants.iter().filter(|one| holds(one));
    holding.filter_map(|one| {
        let pod = one.data.pod.as_ref()?;
        let facts = pods.get(&pod.name).filter(|facts| facts.uid == pod.uid)?;
        Some((one.name.as_str(), facts.revision.as_deref()?))
    })
}

#[cfg(test)]
mod tests;
