//! Rollouts: the lock moves along with them.

use lockkeeper_product::Space;
use lockkeeper_product::space::{BOUND, calm};
use lockkeeper_testbed::process::wait_for;
use serde_json::json;

/// Changes the pod template, so that every pod has to be replaced.
fn roll(space: &Space, value: &str) {
    let set = format!("VALUE={value}");
    space
        .kubectl(&["set", "env", "deployment/report", "--containers=app", &set])
        .unwrap();
}

fn wait_for_rollout(space: &Space) {
    space
        .kubectl(&["rollout", "status", "deployment/report", "--timeout=180s"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
}

/// The hash of the ReplicaSet of a pod.
fn revision_of(space: &Space, pod: &str) -> String {
    let hash = r"--output=jsonpath={.metadata.labels.pod-template-hash}";
    space.kubectl(&["get", "pod", pod, hash]).unwrap()
}

/// The same, for a pod that may be gone.
fn revision_of_name(pod: &str) -> &str {
    pod.rsplit('-').nth(1).unwrap()
}

#[test]
fn a_rollout_of_one_replica_that_is_ready_when_it_holds_completes_forward_and_back() {
    let Some(space) = Space::new("roll-one") else {
        return;
    };
    let mut workload = space.workload(
        "Deployment",
        "report",
        Some(1),
        space.pod(&[space.recording(&[])]),
    );
    workload["metadata"]["annotations"]["lockkeeper.io/readiness"] = json!("holder");
    space.apply(&[space.lock("report", &calm()), workload]);
    let (first, old, _) = space.wait_until_it_runs(0);
    wait_for_rollout(&space);
    let before = revision_of(&space, &old);
    roll(&space, "2");
    wait_for_rollout(&space);
    let (second, new, _) = space.wait_until_it_runs(first);
    assert_ne!(revision_of(&space, &new), before);
    space.kubectl(&["rollout", "undo", "deployment/report"]).unwrap();
    wait_for_rollout(&space);
    let (_, back, _) = space.wait_until_it_runs(second);
    assert_eq!(revision_of(&space, &back), before);
    let report = space.assert_exclusive();
    assert_eq!(report.holds.len(), 3, "one handoff for each rollout");
    for (_, gap) in report.gaps {
        println!("nobody ran for {gap:?}");
    }
}

#[test]
fn a_rollout_of_a_pod_of_two_containers_that_is_guarded_by_signals_takes_the_lock_along() {
    let Some(space) = Space::new("roll-beside") else {
        return;
    };
    // The kubelet starts neither before the pod holds the lock.
    let mut beside = space.recording(&["--token", "0"]);
    beside["name"] = json!("beside");
    beside["command"][1] = json!("/records/beside");
    let pod = space.pod(&[space.recording(&[]), beside]);
    let mut workload = space.workload("Deployment", "report", Some(1), pod);
    let annotations = &mut workload["metadata"]["annotations"];
    annotations["lockkeeper.io/guard"] = json!("signal");
    annotations["lockkeeper.io/container"] = json!("app");
    space.apply(&[space.lock("report", &calm()), workload]);
    let (first, old, _) = space.wait_until_it_runs(0);
    wait_for_rollout(&space);
    roll(&space, "2");
    wait_for_rollout(&space);
    let (_, new, _) = space.wait_until_it_runs(first);
    assert_ne!(revision_of(&space, &new), revision_of_name(&old));
    let report = space.assert_exclusive();
    assert_eq!(report.holds.len(), 2, "one handoff for the rollout");
}

#[test]
fn a_rollout_of_three_replicas_moves_the_lock_and_never_back_and_the_service_follows() {
    let Some(space) = Space::new("roll-three") else {
        return;
    };
    let workload = space.workload(
        "Deployment",
        "report",
        Some(3),
        space.pod(&[space.recording(&[])]),
    );
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "active", "namespace": space.name },
        "spec": {
            "selector": { "app": "worker", "lockkeeper.io/role": "active" },
            "ports": [{ "port": 80, "targetPort": 8000 }],
        },
    });
    space.apply(&[space.lock("report", &calm()), workload, service]);
    space.wait_until_waiting("report", 2);
    let (first, _, _) = space.wait_until_it_runs(0);
    // The lock may still move during these queries; then they are all repeated.
    let service_follows = || {
        let follows = || {
            let holders = space.holders("report");
            let address = "--output=jsonpath={.status.podIP}";
            let address = space.kubectl(&["get", "pod", holders.first()?, address]).ok()?;
            let endpoints = [
                "get",
                "endpointslices",
                "--selector=kubernetes.io/service-name=active",
                "--output=jsonpath={.items[*].endpoints[*].addresses[*]}",
            ];
            let endpoints = space.kubectl(&endpoints).ok()?;
            (!address.is_empty() && endpoints == address).then_some(())
        };
        wait_for(BOUND, follows).unwrap_or_else(|| panic!("{}", space.story()));
    };
    service_follows();
    roll(&space, "2");
    wait_for_rollout(&space);
    space.wait_until_it_runs(first);
    space.wait_until_waiting("report", 2);
    service_follows();
    let holds = space.assert_exclusive().holds;
    // Kubernetes may end the holder before the operator asks it to step down, and then another old pod may be
    // next. But from the new revision the lock never goes back.
    let mut revisions: Vec<_> = holds
        .iter()
        .map(|hold| hold.name.rsplit_once('-').unwrap().0)
        .collect();
    revisions.dedup();
    assert_eq!(revisions.len(), 2, "{holds:?}");
}

#[test]
fn a_paused_rollout_leaves_the_lock_where_it_is() {
    let Some(space) = Space::new("roll-paused") else {
        return;
    };
    let pair = space.pair(&calm(), &[]);
    space.kubectl(&["rollout", "pause", "deployment/report"]).unwrap();
    roll(&space, "2");
    space
        .kubectl(&["scale", "deployment", "report", "--replicas=3"])
        .unwrap();
    space.wait_until_waiting("report", 2);
    space.assert_undisturbed(&pair);
    space
        .kubectl(&["rollout", "resume", "deployment/report"])
        .unwrap();
    wait_for_rollout(&space);
    space.assert_handed_over(&pair);
}

#[test]
fn a_statefulset_rolls_out_from_the_last_to_the_first_and_the_lock_ends_at_a_new_pod() {
    let Some(space) = Space::new("roll-stateful") else {
        return;
    };
    let mut workload = space.workload(
        "StatefulSet",
        "report",
        Some(2),
        space.pod(&[space.recording(&[])]),
    );
    workload["spec"]["serviceName"] = json!("report");
    space.apply(&[space.lock("report", &calm()), workload]);
    let pair = space.started();
    assert_eq!(pair.holder, "report-0");
    space
        .kubectl(&["set", "env", "statefulset/report", "--containers=app", "VALUE=2"])
        .unwrap();
    space
        .kubectl(&["rollout", "status", "statefulset/report", "--timeout=180s"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
    space.assert_handed_over(&pair);
    space.wait_until_waiting("report", 1);
    let holds = space.assert_exclusive().holds;
    assert_eq!(holds.len(), 2, "handed over to the new report-1 once: {holds:?}");
}

#[test]
fn a_daemonset_rolls_out_and_the_lock_ends_at_a_new_pod() {
    let Some(space) = Space::new("roll-daemon") else {
        return;
    };
    let workload = space.workload("DaemonSet", "report", None, space.pod(&[space.recording(&[])]));
    space.apply(&[space.lock("report", &calm()), workload]);
    let pair = space.started();
    space
        .kubectl(&["set", "env", "daemonset/report", "--containers=app", "VALUE=2"])
        .unwrap();
    space
        .kubectl(&["rollout", "status", "daemonset/report", "--timeout=180s"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
    space.assert_handed_over(&pair);
    space.wait_until_waiting("report", 1);
    space.assert_exclusive();
}
