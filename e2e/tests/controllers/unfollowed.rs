//! What the plugin says of pods whose workload names a lock and is of a kind from which the lock does not reach them.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Resource, ResourceExt};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_product::binaries;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::environment::shared;

/// As Argo's, without its schema. Nothing controls its objects here.
const ROLLOUTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: rollouts.argoproj.io }
spec:
  group: argoproj.io
  scope: Namespaced
  names: { kind: Rollout, plural: rollouts, singular: rollout }
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }
";

/// What `kubectl lockkeeper why POD` prints, and what it gives to programs.
fn why(environment: &Environment, space: &Tenant, pod: &str) -> (String, Value) {
    let plugin = binaries::plugin().unwrap();
    let ask = |more: &[&str]| {
        let output = std::process::Command::new(&plugin)
            .args(["why", pod, "--namespace", &space.name, "--kubeconfig"])
            .arg(environment.cluster.kubeconfig())
            .args(more)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    };
    let json = ask(&["--output", "json"]);
    (ask(&[]), serde_json::from_str(&json).unwrap())
}

fn replica_set(name: &str, metadata: &Value) -> ReplicaSet {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "schedulerName": "none", "containers": [{ "name": "app", "image": "none" }] },
            },
        },
    });
    set["metadata"]["name"] = json!(name);
    serde_json::from_value(set).unwrap()
}

/// The pod that Kubernetes has made for a ReplicaSet, if it is another one than this.
async fn pod_of(space: &Tenant, set: &str, before: &str) -> String {
    let of_set = ListParams::default().labels(&format!("app={set}"));
    eventually("the pod of the ReplicaSet", async || {
        let pods = space.api::<Pod>().list(&of_set).await.unwrap().items;
        pods.iter().map(ResourceExt::name_any).find(|name| name != before)
    })
    .await
}

fn assert_unguarded(environment: &Environment, space: &Tenant, pod: &str, workload: &str) {
    let (said, json) = why(environment, space, pod);
    let sentence = format!(
        "{pod} runs WITHOUT the lock report that {workload} names: Lockkeeper watches only its \
         pods; write lockkeeper.io/lock: report into the metadata of its pod template\n"
    );
    assert_eq!(said, sentence);
    assert_eq!(
        (&json["holds"], &json["lock"]),
        (&json!(false), &Value::Null),
        "{json}"
    );
    assert_eq!(json["sentence"], sentence.trim_end());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_pod_whose_workload_is_not_followed_why_says_that_it_runs_without_the_lock_and_what_to_do() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("unfollowed").await;
    let named = json!({ "annotations": { "lockkeeper.io/lock": "report" } });
    let sets = space.api::<ReplicaSet>();
    let create = PostParams::default();

    // A ReplicaSet that no Deployment owns.
    sets.create(&create, &replica_set("bare", &named)).await.unwrap();
    let pod = pod_of(&space, "bare", "").await;
    assert_unguarded(&environment, &space, &pod, "replicaset/bare");

    // After the advice: a ReplicaSet makes only new pods from the new template.
    let patch = Patch::Merge(json!({ "spec": { "template": { "metadata": named } } }));
    sets.patch("bare", &PatchParams::default(), &patch).await.unwrap();
    let pods = space.api::<Pod>();
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete(&pod, &at_once).await.unwrap();
    let next = pod_of(&space, "bare", &pod).await;
    let (said, json) = why(&environment, &space, &next);
    assert!(said.starts_with(&format!("{next} waits for report")), "{said}");
    assert_eq!(json["lock"], "report");

    // A resource of others, which hands its annotations down, as Argo's Rollout does: the one to change is the topmost.
    environment.cluster.apply(ROLLOUTS).unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout"));
    let rollouts: Api<DynamicObject> = Api::namespaced_with(space.client.clone(), &space.name, &kind);
    let mut rollout = DynamicObject::new("canary", &kind);
    rollout.metadata.annotations = Some([("lockkeeper.io/lock".to_owned(), "report".to_owned())].into());
    let rollout = eventually("the API server serves the new kind", async || {
        rollouts.create(&create, &rollout).await.ok()
    })
    .await;
    let mut set = replica_set("canary-1", &named);
    set.metadata.owner_references = rollout.controller_owner_ref(&kind).map(|owner| vec![owner]);
    sets.create(&create, &set).await.unwrap();
    let pod = pod_of(&space, "canary-1", "").await;
    assert_unguarded(&environment, &space, &pod, "rollout/canary");
    space.leave().await;
}
