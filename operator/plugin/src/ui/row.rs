//! A lock as the page gets it. Pure.

use crate::doubt::stale;
use kube::ResourceExt;
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::DistributedLockStatus;
use lockkeeper_daemon::page::Row;

/// The name by which the page knows a lock.
pub(super) fn key(lock: &DistributedLock) -> String {
    format!("{}/{}", lock.namespace().unwrap_or_default(), lock.name_any())
}

/// The lock in JSON.
pub(super) fn json(lock: &DistributedLock) -> String {
    let none = DistributedLockStatus::default();
    let status = lock.status.as_ref().unwrap_or(&none);
    let (name, namespace) = (lock.name_any(), lock.namespace().unwrap_or_default());
    let row = Row {
        key: &key(lock),
        command: format!("kubectl lockkeeper status {name} -n {namespace}"),
        mode: lock.spec.mode.as_str(),
        max_holders: lock.spec.max_holders.into(),
        status,
        doubt: stale(status),
        problem: None,
        is_followed: false,
        renewals: None,
    };
    row.json()
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
        assert_eq!(told["command"], "kubectl lockkeeper status report -n shop");
        // The API server is told of no renewal, and the operator says whether it follows a lock.
        assert_eq!((told.get("renewals"), told.get("isFollowed")), (None, None));
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
