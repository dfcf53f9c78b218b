//! Why a pod runs or waits, in one sentence. Pure.

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lockkeeper_crds::settings::word_of;
use lockkeeper_crds::{ApiLease, DistributedLock, keys};
use serde::Serialize;

use crate::doubt::qualified;
use crate::holders::{named, taken};
use crate::unmarked::unmarked;
use crate::workload::Above;

/// What is known of a pod and its lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    pub pod: String,
    /// Its lock, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    pub holds: bool,
    /// Its place behind the holders, from 1, if that is among those shown in the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// The pods ahead of it: the holders, and those that wait before it.
    pub before: Vec<String>,
    /// All that in words.
    pub sentence: String,
}

/// Says why a pod runs its application, or why not.
/// `is_left_out` is true where its namespace says that the webhooks are not asked.
pub(crate) fn explain(
    pod: &Pod,
    above: &Above,
    is_left_out: bool,
    lock: Option<&DistributedLock>,
) -> Explanation {
    let name = pod.name_any();
    let named_lock = pod
        .labels()
        .get(keys::LOCK)
        .or_else(|| pod.annotations().get(keys::LOCK));
    let mut explanation = Explanation {
        pod: name.clone(),
        lock: named_lock.cloned(),
        holds: false,
        position: None,
        before: Vec::new(),
        sentence: String::new(),
    };
    let Some(lock_name) = named_lock else {
        explanation.sentence = unmarked(&name, above, is_left_out);
        return explanation;
    };
    let Some(lock) = lock else {
        explanation.sentence = format!(
            "{name} waits for {lock_name}, and there is no DistributedLock {lock_name} in its namespace: create it; if the operator \
             was to make it for the pod, its log says why it did not"
        );
        return explanation;
    };
    let made_with = pod.annotations().get(keys::SETTINGS);
    let is_outdated = made_with.is_some_and(|word| *word != word_of(&lock.spec));
    let mut explanation = of_queue(pod, lock_name, lock, explanation);
    if is_outdated {
        explanation.sentence +=
            "; it was created with other settings than the lock has now: restart it to apply them";
    }
    if let Some(status) = &lock.status {
        explanation.sentence = qualified(explanation.sentence, lock_name, status);
    }
    explanation
}

/// The same of a pod that names a lock, by its status.
fn of_queue(pod: &Pod, lock_name: &str, lock: &DistributedLock, mut explanation: Explanation) -> Explanation {
    let name = pod.name_any();
    let Some(status) = &lock.status else {
        explanation.sentence = format!(
            "{name} waits for {lock_name}, but the operator has not looked at {lock_name} yet: check that the operator runs, and \
             the alert LocksLeftOut"
        );
        return explanation;
    };
    let uid = pod.uid();
    if let Some(holder) = status.holders.iter().find(|holder| holder.uid == uid) {
        explanation.holds = true;
        explanation.sentence = format!("{name} holds {lock_name} under token {}", holder.fencing_token);
        if let Some(from) = &holder.taken_from {
            explanation.sentence += &format!("; it took the place of {}", taken(from));
        }
        if let Some(survivors) = holder.survivors {
            explanation.sentence = format!(
                "{name} keeps {lock_name} and runs nothing: {survivors}; no other pod gets the lock until it has gone, or \
                 until `kubectl lockkeeper abandon-survivors {name}` gives it up"
            );
        }
        return explanation;
    }
    if let Some(problem) = status.dispute() {
        explanation.sentence = format!("{name} does not get {lock_name}: {problem}");
        return explanation;
    }
    let holders = status.holders.iter().map(|holder| holder.pod.clone());
    explanation.before.extend(holders);
    let Some(index) = status.queue.iter().position(|one| one.uid == uid) else {
        let shown = status.queue.len();
        let is_all = status
            .waiting
            .is_none_or(|waiting| usize::try_from(waiting).is_ok_and(|waiting| waiting <= shown));
        explanation.sentence = if is_all {
            format!(
                "{name} is not in the queue of {lock_name}: see the log of its sidecar, `kubectl logs {name} -c lockkeeper`"
            )
        } else {
            format!(
                "{name} is not among the first {shown} that wait for {lock_name}, held by {}",
                named(&status.holders)
            )
        };
        return explanation;
    };
    explanation.position = Some(index + 1);
    let waiting = status.queue[..index].iter().map(|one| one.pod.clone());
    explanation.before.extend(waiting);
    let place = match index {
        0 => "is the next".to_owned(),
        index => format!("is number {} in the queue", index + 1),
    };
    explanation.sentence = if status.holders.is_empty() {
        format!("{name} {place} for {lock_name}, which no pod holds yet")
    } else {
        let nodes: Vec<_> = status
            .holders
            .iter()
            .filter_map(|holder| holder.node.as_deref())
            .collect();
        let nodes = match nodes.as_slice() {
            [node] => format!(" on {node}"),
            _ => String::new(),
        };
        let survivors = match status.holders.as_slice() {
            [holder] => holder.survivors.map_or_else(String::new, |survivors| {
                format!(
                    "; {survivors}, and {} keeps the lock until it has gone",
                    holder.pod
                )
            }),
            _ => String::new(),
        };
        // With several holders each may have another lease duration.
        let silence = match status.holders.as_slice() {
            [holder] if index == 0 && takes_over(pod) => {
                holder.lease_duration.map_or_else(String::new, |lease| {
                    format!("; it takes over if {} is silent for {lease}", holder.pod)
                })
            }
            _ => String::new(),
        };
        format!(
            "{name} {place} for {lock_name}, held by {}{nodes}{silence}{survivors}",
            named(&status.holders)
        )
    };
    explanation
}

/// Whether a pod takes the place of a silent holder: it was created with a lease duration, which no release before
/// `leaseDuration` has written.
fn takes_over(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let sidecars = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut variables = sidecars
        .filter(|container| container.name == keys::SIDECAR)
        .flat_map(|sidecar| sidecar.env.iter().flatten());
    let off = ApiLease::Off.to_string();
    variables.any(|one| one.name == keys::LEASE_DURATION && one.value.as_ref() != Some(&off))
}

/// Whether a handoff can be asked for, by what the status shows.
///
/// # Errors
/// Why it cannot, in one sentence.
pub(crate) fn can_hand_over(lock: &DistributedLock, to: Option<&str>) -> Result<(), String> {
    let name = lock.name_any();
    let Some(status) = &lock.status else {
        return Err(format!("the operator has not looked at {name} yet"));
    };
    if status.holders.is_empty() {
        return Err(format!("no pod holds {name}"));
    }
    let waiting = usize::try_from(status.waiting.unwrap_or(0)).unwrap_or(0);
    if let Some(to) = to.filter(|to| status.holders.iter().any(|holder| holder.pod == *to)) {
        return Err(format!("{to} holds {name} already"));
    }
    if waiting == 0 {
        return Err(format!("no pod waits for {name}"));
    }
    let Some(to) = to else { return Ok(()) };
    if waiting <= status.queue.len() && !status.queue.iter().any(|one| one.pod == to) {
        return Err(format!("{to} does not wait for {name}"));
    }
    Ok(())
}
