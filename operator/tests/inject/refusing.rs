//! What cannot be guarded is refused, with a sentence.

use serde_json::{Value, json};

use crate::world::{NEW, OLD, World, golden, pod_of, simple};

/// One step to a pod, or value of a key, that is refused.
type Edit = fn(&mut Value);

#[test]
fn a_bad_pod_gets_one_clear_sentence() {
    let cases: [(Edit, &str); 18] = [
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("Not_A_Label"),
            "lower-case letters",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!(""),
            "name of a lock",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("a,b"),
            "name one of them",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("x".repeat(64)),
            "1 to 63",
        ),
        (
            |pod| pod["metadata"]["labels"] = json!({ "lockkeeper.io/lock": "other" }),
            "a pod can have one lock",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/container"] = json!("no"),
            "write one of app",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("Wrap"),
            "auto, wrap, signal",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/readiness"] = json!("x"),
            "auto, holder, queued",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/access"] = json!("rw"),
            "write, read",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/access"] = json!("read"),
            "has mode Exclusive",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/contaner"] = json!("app"),
            "the keys are",
        ),
        (|pod| pod["spec"]["os"] = json!({ "name": "windows" }), "Windows"),
        (
            |pod| pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/os": "windows" }),
            "Windows",
        ),
        (|pod| pod["spec"]["hostPID"] = json!(true), "remove spec.hostPID"),
        (
            |pod| pod["spec"]["initContainers"] = json!([{ "name": "lockkeeper", "image": "x" }]),
            "rename it",
        ),
        (
            |pod| pod["spec"]["volumes"] = json!([{ "name": "lockkeeper-run" }]),
            "rename it",
        ),
        (
            |pod| pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 9808 }]),
            "another port",
        ),
        (
            |pod| pod["spec"]["containers"][0]["livenessProbe"] = json!({ "tcpSocket": { "port": "web" } }),
            "write the number",
        ),
    ];
    for (edit, part) in cases {
        let mut pod = simple();
        edit(&mut pod);
        let refusal = World::new(NEW).refusal(&pod);
        assert!(refusal.contains(part), "{part:?} is not in {refusal:?}");
    }
}

#[test]
fn what_cannot_be_guarded_safely_is_refused_with_the_way_out() {
    let mut shared = simple();
    shared["spec"]["shareProcessNamespace"] = json!(true);
    shared["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("wrap");
    assert!(
        World::new(NEW)
            .refusal(&shared)
            .contains("set lockkeeper.io/guard to `signal`")
    );
    assert!(
        World::new(OLD)
            .refusal(&shared)
            .ends_with("remove shareProcessNamespace")
    );

    let signal = pod_of("signal");
    assert!(
        World::new(OLD)
            .refusal(&signal)
            .contains("set `command` in the pod, so that it can be wrapped")
    );
    let pausing = World::new(NEW).lock(json!({ "onLoss": "Pause" }));
    assert!(
        pausing
            .refusal(&signal)
            .contains("onLoss of the lock to its default")
    );
    let mut non_root = signal.clone();
    non_root["spec"]["securityContext"] = json!({ "runAsNonRoot": true });
    assert!(
        World::new(NEW)
            .refusal(&non_root)
            .contains("set securityContext.runAsUser")
    );
    let mut unshared = signal;
    unshared["spec"]["shareProcessNamespace"] = json!(false);
    assert!(
        World::new(NEW)
            .refusal(&unshared)
            .contains("shareProcessNamespace is false")
    );

    let mut nowhere = World::new(NEW);
    nowhere.sidecar.connect = None;
    assert!(nowhere.refusal(&simple()).contains("spec.zookeeper.connect"));
    let tight = World::new(NEW).lock(json!({ "sessionTimeout": "6s", "stopGrace": "5s" }));
    assert!(
        tight
            .refusal(&simple())
            .starts_with("DistributedLock `app` is not valid: ")
    );
}

#[test]
fn a_copy_of_an_injected_pod_that_asks_for_another_lock_or_container_is_refused() {
    for (name, world) in golden() {
        let mut pod = world.injected(&pod_of(name)).pod;
        pod["metadata"]["labels"]["lockkeeper.io/lock"] = json!("other");
        pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("other");
        let refusal = world.refusal(&pod);
        assert!(
            refusal.contains("LOCKKEEPER_LOCK is `/lockkeeper/locks/shop/")
                && refusal.contains("not `/lockkeeper/locks/shop/other`"),
            "{name}: {refusal}"
        );
    }
    let world = World::new(NEW).image(&["/legacy"], &[], "daemon");
    let mut pod = world.injected(&pod_of("signal")).pod;
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "other", "image": "o" }));
    pod["metadata"]["annotations"]["lockkeeper.io/container"] = json!("other");
    let refusal = world.refusal(&pod);
    assert!(
        refusal.contains("LOCKKEEPER_CONTAINER is") && refusal.contains("not `other`"),
        "{refusal}"
    );
}
