//! A pod that comes by once more, also after other injectors, gets no more than it has.

use lockkeeper_daemon::token::AppToken;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NEW, TOKEN, env, golden, pod_of, question_of, sidecar, simple};

#[test]
fn to_inject_twice_is_to_inject_once() {
    for (name, cluster) in golden() {
        let once = cluster.injected(&pod_of(name));
        let twice = cluster.injected(&once.pod);
        assert_eq!(twice.pod, once.pod, "{name}");
        assert_eq!(twice.mode, once.mode, "{name}");
        assert_eq!(question_of(&once.pod), None, "{name}: nothing is looked up twice");
    }
}

/// A webhook that is asked again draws another token, and must not use it: the kubelet would know the one and the
/// sidecar the other.
#[test]
fn a_pod_keeps_the_token_that_it_got_first() {
    let mut cluster = Cluster::new(NEW);
    let once = cluster.injected(&pod_of("probes")).pod;
    cluster.token = AppToken::parse(&"x".repeat(32)).unwrap();
    assert_eq!(cluster.injected(&once).pod, once);
    // Also where another injector has changed the pod meanwhile, so that there is something to do.
    let mut changed = once.clone();
    let mesh = json!({ "name": "mesh", "image": "mesh:1", "restartPolicy": "Always" });
    changed["spec"]["initContainers"]
        .as_array_mut()
        .unwrap()
        .push(mesh);
    let again = cluster.injected(&changed).pod;
    assert_eq!(env(sidecar(&again), "LOCKKEEPER_APP_TOKEN"), TOKEN);
    assert_eq!(again["spec"]["containers"], once["spec"]["containers"]);
    // And a pod that is injected for the first time has the new one.
    let other = cluster.injected(&pod_of("probes")).pod;
    assert_eq!(
        *env(sidecar(&other), "LOCKKEEPER_APP_TOKEN"),
        json!("x".repeat(32))
    );
}

#[test]
fn the_sidecar_is_last_again_after_another_injector_came_after_us() {
    for (name, cluster) in golden() {
        let mut pod = cluster.injected(&pod_of(name)).pod;
        let other = json!({ "name": "mesh", "image": "mesh:1", "restartPolicy": "Always" });
        pod["spec"]["initContainers"]
            .as_array_mut()
            .unwrap()
            .push(other.clone());
        // A container before ours does not become the guarded one.
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({ "name": "front", "image": "f" }));
        let again = cluster.injected(&pod).pod;
        sidecar(&again);
        assert!(
            again["spec"]["initContainers"]
                .as_array()
                .unwrap()
                .contains(&other)
        );
        assert_eq!(again["spec"]["containers"][0]["command"], Value::Null, "{name}");
    }
}

#[test]
fn the_guard_is_the_first_process_again_after_another_injector_wrapped_it() {
    let cluster = Cluster::new(NEW);
    let mut pod = cluster.injected(&simple()).pod;
    let app = &mut pod["spec"]["containers"][0];
    app["args"] = app["command"].take();
    app["command"] = json!(["/vault/vault-env"]);
    let again = cluster.injected(&pod).pod;
    let app = &again["spec"]["containers"][0];
    assert_eq!(
        app["command"],
        json!(["/lockkeeper/lockkeeper", "guard", "--", "/vault/vault-env"])
    );
    assert_eq!(app["args"], json!(["/app"]));
}
