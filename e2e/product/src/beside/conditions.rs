//! Parts of a lock's status.

use lockkeeper_crds::DistributedLock;

/// Pods that hold a lock, according to its status.
pub fn holders(lock: &DistributedLock) -> Vec<String> {
    let status = lock.status.clone().unwrap_or_default();
    status.holders.into_iter().map(|holder| holder.pod).collect()
}

/// Pods that wait for a lock, according to its status.
/// The former holders, the last one first, each with how it ended.
pub fn history(lock: &DistributedLock) -> Vec<(String, &'static str)> {
    let past = lock.status.iter().flat_map(|status| &status.history);
    past.map(|one| (one.pod.clone(), one.ended.as_str())).collect()
}

pub fn waiting(lock: &DistributedLock) -> Vec<String> {
    let status = lock.status.clone().unwrap_or_default();
    status.queue.into_iter().map(|one| one.pod).collect()
}

pub fn message(lock: &DistributedLock, kind: &str) -> String {
    let status = lock.status.clone().unwrap_or_default();
    let found = status.conditions.into_iter().find(|one| one.type_ == kind);
    found.map(|one| one.message).unwrap_or_default()
}

/// Status and reason of a condition.
pub fn condition(lock: &DistributedLock, kind: &str) -> (String, String) {
    let status = lock.status.clone().unwrap_or_default();
    let found = status.conditions.into_iter().find(|one| one.type_ == kind);
    found.map(|one| (one.status, one.reason)).unwrap_or_default()
}
