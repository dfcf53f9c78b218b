//! A lock's name on an object from which it does not reach the pods.

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::pods::{plain, workload};
use crate::webhooks::shared;
use lockkeeper_product::chart::Said;

/// A third-party resource, with or without a pod template.
const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: clonesets.apps.example.com }
spec:
  group: apps.example.com
  scope: Namespaced
  names: { kind: CloneSet, plural: clonesets, singular: cloneset }
  versions:
    - name: v1
      served: true
      storage: true
      schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }
";

fn replica_set(name: &str, annotations: Value) -> Value {
    let mut set = workload("Deployment", name, annotations);
    set["kind"] = json!("ReplicaSet");
    set["spec"]["replicas"] = json!(0);
    set
}

fn clone_set(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apps.example.com/v1", "kind": "CloneSet",
        "metadata": { "name": name, "annotations": { "lockkeeper.io/lock": "report" } }, "spec": spec,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_a_workload_of_a_kind_that_is_not_followed_is_refused_unless_its_pods_have_it() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("kinds").await;
    webhooks.cluster.apply(CRD).unwrap();
    let create = |object: &Value| webhooks.kubectl(&space, &["create", "--filename=-"], object);
    let refused = |said: &Said, kind: &str| {
        let sentence = format!("lockkeeper.io/lock on a {kind} does not reach its pods, which would run");
        !said.is_done && said.words.contains(&sentence)
    };
    let named = json!({ "lockkeeper.io/lock": "report" });
    let bare = create(&replica_set("bare", named.clone()));
    assert!(refused(&bare, "ReplicaSet"), "{}", bare.words);
    let template = json!({ "template": { "metadata": {}, "spec": plain("x")["spec"] } });
    eventually("a resource of somebody's is refused", async || {
        refused(&create(&clone_set("bare", template.clone())), "CloneSet").then_some(())
    })
    .await;

    // It is admitted if the pods have the key too, or if there is no key.
    let mut marked = replica_set("marked", named);
    marked["spec"]["template"]["metadata"]["annotations"] = json!({ "lockkeeper.io/lock": "report" });
    let plain = replica_set("plain", json!({}));
    for object in [&marked, &plain] {
        let said = create(object);
        assert!(said.is_done && said.words.is_empty(), "{}", said.words);
    }
    // Also when the key is added later.
    let annotate = ["annotate", "replicaset", "plain", "lockkeeper.io/lock=report"];
    let said = webhooks.kubectl(&space, &annotate, &json!(null));
    assert!(refused(&said, "ReplicaSet"), "{}", said.words);
    // A resource without a known template causes a warning.
    let said = create(&clone_set("other", json!({ "workers": [] })));
    assert!(
        said.is_done
            && said
                .words
                .contains("lockkeeper.io/lock on a CloneSet does not reach its pods, if"),
        "{}",
        said.words
    );
    // It can be changed and deleted.
    let kind = GroupVersionKind::gvk("apps.example.com", "v1", "CloneSet");
    let api: Api<DynamicObject> =
        Api::namespaced_with(space.client.clone(), &space.name, &ApiResource::from_gvk(&kind));
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } }, "spec": template }));
    let patched = api.patch("other", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.labels()["a"], "b");
    api.delete("other", &DeleteParams::default()).await.unwrap();

    // A Deployment may pass its keys to its ReplicaSets.
    let said = create(&workload(
        "Deployment",
        "report",
        json!({ "lockkeeper.io/lock": "report" }),
    ));
    assert!(said.is_done, "{}", said.words);
    eventually("its ReplicaSet is there", async || {
        let sets = ["get", "replicasets", "--output=name"];
        let names = webhooks.kubectl(&space, &sets, &json!(null)).output;
        names.contains("replicaset.apps/report-").then_some(())
    })
    .await;
    space.abandon().await;
}
