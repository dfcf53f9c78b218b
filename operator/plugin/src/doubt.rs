//! What the conditions of a lock say against the rest of its status. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use lockkeeper_crds::lock::{ConditionType, DistributedLockStatus, Reason};

/// A sentence from the status, with what a user has to know of it: that it is old, and why nobody gets the lock.
pub(crate) fn qualified(sentence: String, lock: &str, status: &DistributedLockStatus) -> String {
    let mut sentence = match stale(status) {
        Some(old) => format!("{old}: {sentence}"),
        None => sentence,
    };
    let is_told = |one: &&Condition| {
        one.status == "False" && one.reason != Reason::EnsembleChanged.as_str() && !one.message.is_empty()
    };
    if let Some(ready) = status.condition(ConditionType::Ready).filter(is_told) {
        sentence += &format!("; {lock} is not ready ({}): {}", ready.reason, ready.message);
    }
    sentence
}

/// That a status is old, if it is.
pub(crate) fn stale(status: &DistributedLockStatus) -> Option<String> {
    let unreachable = status
        .condition(ConditionType::EnsembleReachable)
        .filter(|one| one.status != "True");
    let unknown = status
        .condition(ConditionType::Held)
        .filter(|one| one.status == "Unknown");
    let since = unreachable.or(unknown)?;
    let what = match unreachable {
        Some(_) => "has not reached the ensemble",
        None => "has not followed the queue",
    };
    Some(format!(
        "the operator {what} since {}, and what follows may be over",
        since.last_transition_time.0
    ))
}
