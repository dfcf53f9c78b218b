//! The webhook admits dangerous settings with a warning in the user's terminal.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::PostParams;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::pods::{marked, workload};
use crate::webhooks::shared;
use lockkeeper_product::chart::Said;

fn assert_warned(said: &Said, part: &str) {
    assert!(said.is_done, "{}", said.words);
    assert!(warns(said, part), "{part:?} is not in {:?}", said.words);
}

fn warns(said: &Said, part: &str) -> bool {
    said.words
        .lines()
        .any(|line| line.starts_with("Warning: ") && line.contains(part))
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_warns_of_standbys_that_are_never_ready() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("standbys").await;
    let mut object = workload(
        "Deployment",
        "report",
        json!({ "lockkeeper.io/lock": "report", "lockkeeper.io/readiness": "holder" }),
    );
    object["spec"]["replicas"] = json!(2);
    let said = webhooks.kubectl(&space, &["create", "-f", "-"], &object);
    assert_warned(&said, "standbys are never ready, so rollouts stop");
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_warns_of_an_autoscaler_whose_replicas_would_all_wait() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("autoscaler").await;
    let autoscaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
        "metadata": { "name": "busy" },
        "spec": { "maxReplicas": 9, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "report" } },
    }))
    .unwrap();
    space
        .api()
        .create(&PostParams::default(), &autoscaler)
        .await
        .unwrap();
    let object = workload("Deployment", "report", json!({ "lockkeeper.io/lock": "report" }));
    // The operator looks for a second at most, and warns of nothing that it has not seen by then.
    let asked = ["create", "--dry-run=server", "-f", "-"];
    eventually("kubectl warns", async || {
        let said = webhooks.kubectl(&space, &asked, &object);
        warns(&said, "HorizontalPodAutoscaler `busy` scales this Deployment").then_some(())
    })
    .await;
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_warns_of_a_deployment_whose_pods_will_be_refused() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("refused").await;
    let mut object = workload("Deployment", "report", json!({ "lockkeeper.io/lock": "report" }));
    object["spec"]["template"]["spec"]["hostPID"] = json!(true);
    let said = webhooks.kubectl(&space, &["create", "-f", "-"], &object);
    assert_warned(&said, "the pod has hostPID");
    assert_warned(&said, "its pods will be refused");
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_warns_of_a_template_that_names_another_lock_than_its_workload() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("other").await;
    let mut object = workload("Deployment", "report", json!({ "lockkeeper.io/lock": "report" }));
    object["spec"]["template"]["metadata"]["annotations"] = json!({ "lockkeeper.io/lock": "other" });
    let said = webhooks.kubectl(&space, &["create", "-f", "-"], &object);
    assert_warned(&said, "the template's counts");
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_warned_of_what_is_all_right() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("right").await;
    let mut object = workload("Deployment", "report", json!({ "lockkeeper.io/lock": "report" }));
    object["spec"]["replicas"] = json!(3);
    for object in [object, marked("alone")] {
        let said = webhooks.kubectl(&space, &["create", "-f", "-"], &object);
        assert!(said.is_done && said.words.is_empty(), "{}", said.words);
    }
    webhooks.kubectl(&space, &["delete", "deployment", "report"], &Value::Null);
    space.abandon().await;
}
