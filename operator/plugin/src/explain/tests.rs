//! Tests of what is said of a pod and of its lock.

use super::*;
use serde_json::json;

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "labels": {"lockkeeper.io/lock": "report"}},
    }))
    .unwrap()
}

fn lock() -> DistributedLock {
    serde_json::from_value(json!({
        "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
        "metadata": {"name": "report"}, "spec": {},
        "status": {
            "holders": [{"pod": "a", "uid": "a", "node": "n1", "contender": "c1", "fencingToken": 7}],
            "waiting": 2,
            "queue": [
                {"pod": "b", "uid": "b", "contender": "c2"},
                {"pod": "c", "uid": "c", "contender": "c3"},
            ],
        },
    }))
    .unwrap()
}

#[test]
fn a_pod_is_told_who_is_in_its_way() {
    let lock = lock();
    let sentence = |name: &str| explain(&pod(name), &Above::Nothing, false, Some(&lock)).sentence;
    assert_eq!(sentence("a"), "a holds report under token 7");
    assert_eq!(sentence("b"), "b is the next for report, held by a on n1");
    assert_eq!(
        sentence("c"),
        "c is number 2 in the queue for report, held by a on n1"
    );
    assert_eq!(
        explain(&pod("c"), &Above::Nothing, false, Some(&lock)).before,
        ["a", "b"]
    );
    assert!(sentence("d").starts_with("d is not in the queue of report: see the log"));
}

#[test]
fn a_pod_is_told_what_outlives_sigkill_and_how_to_give_it_up() {
    let mut lock = lock();
    lock.status.as_mut().unwrap().holders[0].survivors =
        serde_json::from_value(json!({ "processes": 1, "pid": 4711 })).unwrap();
    let sentence = |name: &str| explain(&pod(name), &Above::Nothing, false, Some(&lock)).sentence;
    assert_eq!(
        sentence("a"),
        "a keeps report and runs nothing: 1 process of its application has outlived SIGKILL (process 4711); no \
         other pod gets the lock until it has gone, or until `kubectl lockkeeper abandon-survivors a` gives it up"
    );
    assert_eq!(
        sentence("b"),
        "b is the next for report, held by a on n1; 1 process of its application has outlived SIGKILL (process \
         4711), and a keeps the lock until it has gone"
    );
}

#[test]
fn a_pod_is_told_after_which_silence_it_takes_a_place_and_whose_it_has_taken() {
    let mut lock = lock();
    let holder = &mut lock.status.as_mut().unwrap().holders[0];
    holder.lease_duration = Some("8500ms".parse().unwrap());
    let from = json!({"pod": "z", "contender": "c0", "silence": "8612ms"});
    holder.taken_from = serde_json::from_value(from).unwrap();
    let of = |lease: serde_json::Value, name: &str| {
        let mut pod = pod(name);
        let sidecar = json!({"name": "lockkeeper", "env": lease});
        pod.spec = serde_json::from_value(json!({"containers": [], "initContainers": [sidecar]})).unwrap();
        explain(&pod, &Above::Nothing, false, Some(&lock)).sentence
    };
    let with = |lease: &str| json!([{"name": "LOCKKEEPER_LEASE_DURATION", "value": lease}]);
    let sentence = |name: &str| of(with("auto"), name);
    assert_eq!(
        sentence("a"),
        "a holds report under token 7; it took the place of z, which was silent for 8612ms"
    );
    assert_eq!(
        sentence("b"),
        "b is the next for report, held by a on n1; it takes over if a is silent for 8500ms"
    );
    for without in [with("off"), json!([])] {
        assert_eq!(of(without, "b"), "b is the next for report, held by a on n1");
    }
    assert_eq!(
        sentence("c"),
        "c is number 2 in the queue for report, held by a on n1"
    );
}

#[test]
fn a_pod_whose_lock_is_missing_or_was_not_looked_at_is_told_which() {
    let sentence = |lock| explain(&pod("a"), &Above::Nothing, false, lock).sentence;
    assert!(sentence(None).starts_with("a waits for report, and there is no DistributedLock report"));
    let new = DistributedLock {
        status: None,
        ..lock()
    };
    assert!(sentence(Some(&new)).contains("check that the operator runs"));
}

#[test]
fn a_pod_is_told_that_the_status_is_old_and_why_nobody_gets_the_lock() {
    let mut lock = lock();
    let mut sentence = |conditions: &[[&str; 3]]| {
        let conditions = conditions.iter().map(|[kind, status, reason]| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "why",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        });
        let conditions = serde_json::Value::from_iter(conditions);
        lock.status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
        explain(&pod("a"), &Above::Nothing, false, Some(&lock)).sentence
    };
    let held = "a holds report under token 7";
    assert_eq!(
        sentence(&[["Ready", "True", "Provisioned"], ["Held", "True", "HeldByPods"]]),
        held
    );
    let out_of_reach = [
        ["Ready", "Unknown", "Disconnected"],
        ["Held", "Unknown", "Disconnected"],
        ["EnsembleReachable", "False", "Disconnected"],
    ];
    assert_eq!(
        sentence(&out_of_reach),
        format!(
            "the operator has not reached the ensemble since 2026-01-01T00:00:00Z, and what follows may be over: {held}"
        )
    );
    let crowded = [
        ["Ready", "False", "TooManyContenders"],
        ["Held", "Unknown", "TooManyContenders"],
        ["EnsembleReachable", "True", "Connected"],
    ];
    assert_eq!(
        sentence(&crowded),
        format!(
            "the operator has not followed the queue since 2026-01-01T00:00:00Z, and what follows may be over: {held}; \
             report is not ready (TooManyContenders): why"
        )
    );
    assert_eq!(
        sentence(&[["Ready", "False", "UnknownContender"]]),
        format!("{held}; report is not ready (UnknownContender): why")
    );
}

#[test]
fn a_pod_that_was_made_before_its_lock_was_changed_is_told_so() {
    let mut lock = lock();
    let mut pod = pod("a");
    pod.annotations_mut()
        .insert(keys::SETTINGS.into(), word_of(&lock.spec));
    let sentence = |lock: &DistributedLock| explain(&pod, &Above::Nothing, false, Some(lock)).sentence;
    assert_eq!(sentence(&lock), "a holds report under token 7");
    lock.spec.max_holders = 2;
    assert!(
        sentence(&lock).starts_with("a holds report under token 7; it was created with other settings"),
        "{}",
        sentence(&lock)
    );
}

#[test]
fn a_pod_of_a_lock_in_another_ensemble_is_told_what_the_status_says() {
    let mut lock = lock();
    lock.status.as_mut().unwrap().conditions = serde_json::from_value(json!([{
        "type": "Ready", "status": "False", "reason": "EnsembleChanged", "message": "b was made for the former",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]))
    .unwrap();
    let sentence = explain(&pod("b"), &Above::Nothing, false, Some(&lock)).sentence;
    assert_eq!(sentence, "b does not get report: b was made for the former");
}

#[test]
fn a_handoff_that_cannot_be_is_not_asked_for() {
    let mut lock = lock();
    assert_eq!(can_hand_over(&lock, None), Ok(()));
    assert_eq!(can_hand_over(&lock, Some("c")), Ok(()));
    let refused = |lock: &DistributedLock, to| can_hand_over(lock, to).unwrap_err();
    assert_eq!(refused(&lock, Some("a")), "a holds report already");
    assert_eq!(refused(&lock, Some("x")), "x does not wait for report");
    lock.status.as_mut().unwrap().waiting = Some(0);
    assert_eq!(refused(&lock, None), "no pod waits for report");
    assert_eq!(refused(&lock, Some("a")), "a holds report already");
    lock.status.as_mut().unwrap().holders.clear();
    assert_eq!(refused(&lock, None), "no pod holds report");
}
