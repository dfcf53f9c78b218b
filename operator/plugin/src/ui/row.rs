//! A lock as the page gets it. Pure.

use kube::ResourceExt;
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::DistributedLockStatus;
use serde::Serialize;

use crate::doubt::stale;

/// What the page knows of a lock: its status, and what has to be worked out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    /// The same as long as the lock is there.
    key: &'a str,
    namespace: String,
    name: String,
    mode: &'static str,
    max_holders: i32,
    status: &'a DistributedLockStatus,
    /// That the status is old, if it is.
    doubt: Option<String>,
}

/// The name by which the page knows a lock.
pub(super) fn key(lock: &DistributedLock) -> String {
    format!("{}/{}", lock.namespace().unwrap_or_default(), lock.name_any())
}

/// The lock in JSON.
pub(super) fn json(lock: &DistributedLock) -> String {
    let none = DistributedLockStatus::default();
    let status = lock.status.as_ref().unwrap_or(&none);
    let row = Row {
        key: &key(lock),
        namespace: lock.namespace().unwrap_or_default(),
        name: lock.name_any(),
        mode: lock.spec.mode.as_str(),
        max_holders: lock.spec.max_holders,
        status,
        doubt: stale(status),
    };
    serde_json::to_string(&row).unwrap_or_else(|_| unreachable!("a status has only names and numbers"))
}

#[cfg(test)]
mod tests {
    use serde_json::json as object;

    use super::*;

    #[test]
    fn the_page_gets_the_status_and_that_it_is_old() {
        let lock: DistributedLock = serde_json::from_value(object!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "report", "namespace": "shop"}, "spec": {"maxHolders": 2},
            "status": {
                "holders": [{"pod": "report-1", "contender": "c", "fencingToken": 4294967331i64}],
                "conditions": [{"type": "EnsembleReachable", "status": "False", "reason": "Unreachable", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        }))
        .unwrap();
        let told: serde_json::Value = serde_json::from_str(&json(&lock)).unwrap();
        assert_eq!(told["key"], "shop/report");
        assert_eq!(told["maxHolders"], 2);
        assert_eq!(
            told["status"],
            serde_json::to_value(lock.status.unwrap()).unwrap()
        );
        assert!(
            told["doubt"]
                .as_str()
                .unwrap()
                .contains("has not reached the ensemble since"),
            "{told}"
        );
    }
}
