//! All locks, and all pods behind locks.

use super::{Said, good, problem, warning};
use crate::check::installed::{Locks, Sidecars};

pub(super) fn locks(found: &Locks) -> Said {
    let Locks { all, broken, unready } = found;
    let of_unready = || {
        format!(
            "{} of {all} locks are not ready: {}",
            unready.count,
            unready.told()
        )
    };
    match (broken.count, unready.count) {
        (0, 0) if *all == 0 => {
            warning("there is no lock yet, so nothing says whether the operator reaches the ensemble")
        }
        (0, 0) => good(format!("locks: {all}; the operator reaches their ensembles")),
        (0, _) => warning(of_unready()),
        (some, none) => {
            let more = if none > 0 {
                format!("; {}", of_unready())
            } else {
                String::new()
            };
            problem(format!(
                "the operator cannot serve {some} of {all} locks: {}{more}",
                broken.told()
            ))
        }
    }
}

pub(super) fn sidecars(found: &Sidecars) -> Said {
    let Sidecars {
        injected,
        all,
        other,
        unguarded,
    } = found;
    if unguarded.count > 0 {
        problem(format!(
            "{} of {all} pods with a lock have no sidecar, and run WITHOUT their lock: {}; \
                 `kubectl lockkeeper why POD` says why",
            unguarded.count,
            unguarded.told()
        ))
    } else if other.count > 0 {
        warning(format!(
            "the operator injects {injected} now, and {} of {all} pods have another sidecar until they are replaced, \
                 or because a registry mirrors it: {}",
            other.count,
            other.told()
        ))
    } else {
        good(format!(
            "pods: {all}; all have the sidecar that the operator injects now"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, object};
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use lockkeeper_crds::DistributedLock;
    use serde_json::{Value, json};

    fn lock(name: &str, ready: &str, reason: &str, reachable: &str, spec: Value) -> DistributedLock {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "so it is",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let conditions = [
            condition("Ready", ready, reason),
            condition("EnsembleReachable", reachable, "Connected"),
        ];
        object(json!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec,
            "status": {"conditions": conditions},
        }))
    }

    fn said(all: &[DistributedLock]) -> Said {
        let mut found = Locks::default();
        let now = "2026-01-01T00:02:00Z".parse().unwrap();
        all.iter().for_each(|lock| found.add(lock, now));
        locks(&found)
    }

    #[test]
    fn a_lock_that_is_not_ready_is_a_problem_only_if_the_installation_is_to_blame() {
        let ready = lock("a", "True", "Provisioned", "True", json!({}));
        assert_eq!(said(std::slice::from_ref(&ready)).0, Verdict::Good);
        assert_eq!(said(&[]).0, Verdict::Warning);
        let invalid = lock("b", "False", "InvalidSpec", "True", json!({}));
        let (verdict, says) = said(&[ready, invalid.clone()]);
        assert!(
            verdict == Verdict::Warning && says.ends_with("1 of 2 locks are not ready: shop/b: so it is"),
            "{says}"
        );
        let cut_off = lock("c", "Unknown", "Disconnected", "False", json!({}));
        let (verdict, says) = said(&[cut_off, invalid]);
        assert!(
            verdict == Verdict::Problem && says.contains("shop/c: so it is; 1 of 2 locks"),
            "{says}"
        );
        let elsewhere = json!({"zookeeper": {"connect": "other:2181"}});
        let elsewhere = lock("d", "Unknown", "Disconnected", "False", elsewhere);
        assert_eq!(said(&[elsewhere]).0, Verdict::Warning);
        let outdated = lock("e", "False", "ResourceOutdated", "True", json!({}));
        assert_eq!(said(&[outdated]).0, Verdict::Problem);
    }

    #[test]
    fn a_lock_that_no_operator_describes_is_a_problem_after_a_minute() {
        let mut unknown = lock("a", "True", "Provisioned", "True", json!({}));
        unknown.status = None;
        assert_eq!(said(std::slice::from_ref(&unknown)).0, Verdict::Problem);
        unknown.metadata.creation_timestamp = Some(object(json!("2026-01-01T00:01:30Z")));
        assert_eq!(said(&[unknown]).0, Verdict::Good);
    }

    fn pod(image: Option<&str>, phase: &str) -> Pod {
        let ours: Vec<_> = image
            .iter()
            .map(|image| json!({"name": "lockkeeper", "image": image}))
            .collect();
        object(json!({
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {"containers": [], "initContainers": ours},
            "status": {"phase": phase},
        }))
    }

    #[test]
    fn a_pod_without_a_sidecar_is_a_problem_and_one_with_another_a_warning() {
        let said = |pods: &[Pod]| {
            let mut found = Sidecars::of("lockkeeper:2".to_owned());
            pods.iter().for_each(|pod| found.add(pod));
            sidecars(&found)
        };
        let current = pod(Some("lockkeeper:2"), "Running");
        assert_eq!(said(std::slice::from_ref(&current)).0, Verdict::Good);
        let former = pod(Some("lockkeeper:1"), "Running");
        let (verdict, says) = said(&[current, former.clone(), former]);
        assert!(
            verdict == Verdict::Warning && says.contains("2 of 3 pods") && says.contains("lockkeeper:1"),
            "{says}"
        );
        let done = [pod(Some("lockkeeper:1"), "Succeeded"), pod(None, "Failed")];
        assert_eq!(said(&done).0, Verdict::Good);
        let (verdict, says) = said(&[pod(None, "Running")]);
        assert!(
            verdict == Verdict::Problem && says.contains("WITHOUT their lock: shop/p"),
            "{says}"
        );
    }
}
