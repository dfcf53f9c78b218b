//! Namespaces with rules of their own.

use lockkeeper_product::space::{Space, calm};
use serde_json::json;

#[test]
fn a_wrapped_pod_keeps_to_the_restricted_pod_security_standard() {
    let Some(space) = Space::new("restricted") else {
        return;
    };
    space
        .cluster
        .kubectl(&[
            "label",
            "namespace",
            &space.name,
            "pod-security.kubernetes.io/enforce=restricted",
        ])
        .unwrap();
    let mut container = space.recording(&[]);
    container["securityContext"] = json!({
        "runAsNonRoot": true,
        "runAsUser": 1000,
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    let mut pod = space.pod(&[container]);
    // This namespace allows no hostPath volumes.
    pod["volumes"] = json!([{ "name": "records", "emptyDir": {} }]);
    space.apply(&[
        space.lock("report", &json!({})),
        space.workload("Deployment", "report", Some(2), pod),
    ]);
    space.wait_until_waiting("report", 1);
    let holder = space.holders("report").remove(0);
    space
        .kubectl(&["delete", "pod", &holder, "--wait=false"])
        .unwrap();
    space.wait_for_lock("report", "{.status.holders[*].pod}", |now| {
        !now.is_empty() && now != holder
    });
}

#[test]
fn a_lock_of_the_same_name_in_another_namespace_is_another_lock() {
    let Some(one) = Space::new("tenant-one") else {
        return;
    };
    let other = one.beside("tenant-other");
    let pair = one.pair(&calm(), &[]);
    let theirs = other.pair(&calm(), &[]);
    one.assert_undisturbed(&pair);
    other.assert_undisturbed(&theirs);
    let auth = |space: &Space| {
        space
            .kubectl(&[
                "get",
                "secret",
                "lockkeeper-zookeeper",
                "--output=jsonpath={.data.auth}",
            ])
            .unwrap()
    };
    assert_ne!(auth(&one), auth(&other));
    // A change of one namespace's lock does not affect the other's.
    one.kubectl(&["delete", "pod", &pair.holder, "--wait=false"])
        .unwrap();
    one.assert_handed_over(&pair);
    other.assert_undisturbed(&theirs);
}
