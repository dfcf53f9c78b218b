//! What a pod had stays as it was.

use lockkeeper_operator::admission::inject::Mode;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NEW, OLD, golden, pod_of, sidecar, simple};

#[test]
fn a_pod_without_a_lock_is_left_alone_and_so_is_a_mirror_pod() {
    let mut pod = simple();
    pod["metadata"]["annotations"] = json!({ "note": "x" });
    assert_eq!(Cluster::new(OLD).inject(&pod), Ok(None));
    let mut mirror = simple();
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("x");
    assert_eq!(Cluster::new(OLD).inject(&mirror), Ok(None));
}

#[test]
fn fields_that_we_do_not_know_are_kept() {
    let mut pod = simple();
    pod["spec"]["fieldOfTheFuture"] = json!({ "a": 1 });
    pod["spec"]["containers"][0]["another"] = json!([1]);
    let injected = Cluster::new(NEW).injected(&pod).pod;
    assert_eq!(injected["spec"]["fieldOfTheFuture"], json!({ "a": 1 }));
    assert_eq!(injected["spec"]["containers"][0]["another"], json!([1]));
}

#[test]
fn a_pod_keeps_its_class_of_service() {
    let resources = |pod: &Value| sidecar(&Cluster::new(NEW).injected(pod).pod)["resources"].clone();
    assert_eq!(resources(&simple()), json!({}), "BestEffort");
    let mut pod = simple();
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": "1Mi" } });
    assert_eq!(resources(&pod)["requests"]["cpu"], "10m", "Burstable");
    pod["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1", "memory": "1Mi" } });
    let guaranteed = resources(&pod);
    assert_eq!(
        guaranteed["limits"],
        json!({ "cpu": "100m", "memory": "64Mi" }),
        "Guaranteed"
    );
    assert_eq!(guaranteed["requests"], guaranteed["limits"], "Guaranteed");
    pod["spec"]["resources"] = json!({ "limits": { "cpu": "1", "memory": "1Mi" } });
    assert_eq!(resources(&pod), json!({}), "resources of the whole pod");
}

#[test]
fn nothing_that_is_added_in_wrap_mode_breaks_the_restricted_level_of_pod_security() {
    for (name, cluster) in golden() {
        let injected = cluster.injected(&pod_of(name));
        if injected.mode == Mode::Signal {
            continue;
        }
        let inits = injected.pod["spec"]["initContainers"].as_array().unwrap();
        for container in inits
            .iter()
            .filter(|c| c["name"].as_str().unwrap().starts_with("lockkeeper"))
        {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["runAsNonRoot"], true, "{name}");
            assert_ne!(security["runAsUser"], 0, "{name}");
            assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }), "{name}");
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        }
    }
}
