//! The second safeguard: in a namespace without the webhooks, the policy still refuses marked pods without a
//! guard.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyStatus,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::pods::{marked, plain};
use crate::webhooks::shared;

/// A change after which the pod is no longer guarded.
type Edit = fn(&mut Value);

const LOCK: &str = "its sidecar has another lock";
const SIDECAR: &str = "its last init container is not the sidecar lockkeeper";
const GUARD: &str = "the container in lockkeeper.io/container has no guard";

const OF_BOTH: [(Edit, &str); 7] = [
    (|pod| drop(pod["spec"]["initContainers"].take()), SIDECAR),
    (
        |pod| {
            let other = json!({ "name": "other", "image": "other:1" });
            pod["spec"]["initContainers"].as_array_mut().unwrap().push(other);
        },
        SIDECAR,
    ),
    (
        |pod| {
            pod["spec"]["initContainers"] =
                json!([{ "name": "lockkeeper", "image": "lockkeeper:1", "args": ["sidecar"] }]);
        },
        SIDECAR,
    ),
    (
        |pod| pod["spec"]["initContainers"][0]["args"] = json!(["status"]),
        SIDECAR,
    ),
    (
        |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("other"),
        LOCK,
    ),
    (
        |pod| {
            let other = json!({ "name": "other", "image": "other:1", "command": ["/app"] });
            pod["spec"]["containers"].as_array_mut().unwrap().push(other);
            pod["metadata"]["annotations"]["lockkeeper.io/container"] = json!("other");
        },
        GUARD,
    ),
    (
        |pod| {
            let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.remove("lockkeeper.io/container");
        },
        GUARD,
    ),
];

const OF_WRAP: [(Edit, &str); 11] = [
    (
        |pod| pod["spec"]["containers"][0]["command"] = json!(["/app"]),
        GUARD,
    ),
    (
        |pod| {
            pod["spec"]["containers"][0]["command"] =
                json!(["/bin/sh", "-c", "/lockkeeper/lockkeeper guard -- /app"]);
        },
        GUARD,
    ),
    (
        |pod| pod["spec"]["containers"][0]["command"] = json!(["/lockkeeper/lockkeeper", "guard", "--"]),
        GUARD,
    ),
    (|pod| pod["spec"]["shareProcessNamespace"] = json!(true), GUARD),
    (
        |pod| {
            let mounts = pod["spec"]["containers"][0]["volumeMounts"]
                .as_array_mut()
                .unwrap();
            mounts.retain(|mount| mount["name"] != "lockkeeper-run");
        },
        GUARD,
    ),
    // The binary of the guard is in the first of our folders, and the socket of its keeper in the second.
    (|pod| mount(pod, "/lockkeeper/lockkeeper"), GUARD),
    (|pod| mount(pod, "//run/./lockkeeper/guard.sock"), GUARD),
    (|pod| mount(pod, "lockkeeper/lockkeeper"), GUARD),
    (|pod| mount(pod, "/opt/../lockkeeper/lockkeeper"), GUARD),
    (|pod| mount(pod, "/var/run/lockkeeper"), GUARD),
    (
        |pod| {
            for mount in pod["spec"]["containers"][0]["volumeMounts"]
                .as_array_mut()
                .unwrap()
            {
                mount["subPath"] = json!("part");
            }
        },
        GUARD,
    ),
];

/// Mounts a volume of the user's.
fn mount(pod: &mut Value, path: &str) {
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    let name = format!("mine-{}", volumes.len());
    volumes.push(json!({ "name": name, "emptyDir": {} }));
    let mount = json!({ "name": name, "mountPath": path });
    pod["spec"]["containers"][0]["volumeMounts"]
        .as_array_mut()
        .unwrap()
        .push(mount);
}

const OF_SIGNAL: [(Edit, &str); 7] = [
    (|pod| drop(pod["spec"]["containers"][0]["env"].take()), GUARD),
    (
        |pod| {
            pod["spec"]["containers"][0]["env"][0]["valueFrom"] =
                json!({ "fieldRef": { "fieldPath": "metadata.name" } });
        },
        GUARD,
    ),
    (
        |pod| pod["spec"]["containers"][0]["env"][0]["valueFrom"]["fileKeyRef"]["optional"] = json!(true),
        GUARD,
    ),
    (
        |pod| pod["spec"]["containers"][0]["env"][0]["valueFrom"]["fileKeyRef"]["path"] = json!("mine.env"),
        GUARD,
    ),
    (|pod| pod["spec"]["shareProcessNamespace"] = json!(false), GUARD),
    (
        |pod| {
            let env = pod["spec"]["initContainers"][0]["env"].as_array_mut().unwrap();
            env.retain(|var| var["name"] != "LOCKKEEPER_CONTAINER");
        },
        GUARD,
    ),
    (
        |pod| drop(pod["spec"]["initContainers"][0]["startupProbe"].take()),
        GUARD,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_marked_pod_without_a_guard_of_its_own_container_is_refused_without_the_webhook() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("policy").await;
    let mut by_signals = marked("pod");
    by_signals["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("signal");
    by_signals["spec"]["securityContext"] = json!({ "runAsUser": 1000 });
    let mut injected = Vec::new();
    for pod in [marked("pod"), by_signals] {
        let admitted = space.try_out(&pod).await.unwrap();
        let mut metadata = json!({ "name": "pod" });
        for map in ["labels", "annotations"] {
            metadata[map] = admitted["metadata"][map].clone();
        }
        // The label follows the annotation in the copies below.
        metadata["labels"].take();
        let mut pod = json!({ "metadata": metadata, "spec": admitted["spec"] });
        // Our gate comes first in the copies below.
        if let Some(env) = pod["spec"]["containers"][0]["env"].as_array_mut() {
            env.retain(|var| var["name"] == "LOCKKEEPER_FENCING_TOKEN");
        }
        injected.push(pod);
    }
    let [wrapped, signalled] = injected.try_into().unwrap();

    let off = json!({ "metadata": { "labels": { "lockkeeper.io/injection": "disabled" } } });
    let namespaces: Api<Namespace> = Api::all(space.client.clone());
    namespaces
        .patch(&space.name, &PatchParams::default(), &Patch::Merge(off))
        .await
        .unwrap();
    let refusal = eventually("the webhooks are off", async || {
        space.try_out(&marked("pod")).await.err()
    })
    .await;
    assert!(
        refusal.contains(SIDECAR) && refusal.contains("Is the webhook lockkeeper installed"),
        "{refusal}"
    );

    let mut elsewhere = wrapped.clone();
    mount(&mut elsewhere, "/run/lockkeeper-of-mine");
    mount(&mut elsewhere, "/data/lockkeeper/..data");
    space.try_out(&elsewhere).await.unwrap();
    for (pod, of_mode) in [(&wrapped, &OF_WRAP[..]), (&signalled, &OF_SIGNAL)] {
        space.try_out(pod).await.unwrap();
        for (at, (edit, part)) in OF_BOTH.iter().chain(of_mode).enumerate() {
            let mut pod = pod.clone();
            edit(&mut pod);
            let refusal = space.try_out(&pod).await.expect_err(&format!("{at}: {part}"));
            assert!(
                refusal.contains(part) && !refusal.contains('\n'),
                "{at}: {part:?} is not in {refusal:?}"
            );
        }
    }
    space.try_out(&plain("pod")).await.unwrap();
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policies_name_no_field_that_their_objects_do_not_have() {
    let Some(webhooks) = shared().await else { return };
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(webhooks.client().await);
    for name in [
        "guarded",
        "operator-secrets",
        "operator-pods",
        "operator-locks",
        "operator-events",
        "operator-webhooks",
    ] {
        let status = eventually("its types are checked", async || {
            let policy = policies.get(&format!("lockkeeper-{name}")).await.unwrap();
            let is_current = |status: &ValidatingAdmissionPolicyStatus| {
                status.observed_generation == policy.metadata.generation && status.type_checking.is_some()
            };
            policy.status.filter(is_current)
        })
        .await;
        let warnings = status.type_checking.unwrap().expression_warnings;
        assert!(
            warnings.iter().flatten().next().is_none(),
            "{name}: {warnings:#?}"
        );
    }
}
