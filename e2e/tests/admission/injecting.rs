//! The API server puts a marked pod behind its lock, and changes nothing else.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use lockkeeper_crds::DistributedLock;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::pods::{marked, plain, sidecar, words, workload, wrapped};
use crate::webhooks::shared;

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_of_an_annotated_deployment_is_behind_its_lock_and_the_lock_is_made() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("deployment").await;
    let pod = webhooks.deploy(&space).await;
    // The operator looks for a second at most how many pods there are to be, and takes a pod for one of several if it does not
    // know by then.
    let pods = space.api::<Pod>();
    let pod = eventually("a pod whose workload the operator has read in time", async || {
        let alone = |pod: &Value| sidecar(pod)["readinessProbe"]["httpGet"]["path"] == "/readyz";
        if alone(&pod) {
            return Some(pod.clone());
        }
        let found = pods.list(&ListParams::default()).await.unwrap().items;
        let found: Vec<_> = found
            .iter()
            .map(|pod| serde_json::to_value(pod).unwrap())
            .collect();
        if let Some(pod) = found.iter().find(|pod| alone(pod)) {
            return Some(pod.clone());
        }
        pods.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
        None
    })
    .await;
    assert_eq!(words(&pod).0, wrapped(&["/app"]));
    assert_eq!(pod["metadata"]["labels"]["lockkeeper.io/lock"], "report");
    assert_eq!(pod["metadata"]["labels"]["app"], "report");
    let sidecar = sidecar(&pod);
    assert_eq!(sidecar["restartPolicy"], "Always");
    // A single pod: ready while it holds.
    assert_eq!(sidecar["readinessProbe"]["httpGet"]["path"], "/readyz");
    let env = sidecar["env"].as_array().unwrap();
    let lock = env.iter().find(|var| var["name"] == "LOCKKEEPER_LOCK").unwrap();
    assert_eq!(lock["value"], format!("/lockkeeper/locks/{}/report", space.name));
    let revision = env
        .iter()
        .find(|var| var["name"] == "LOCKKEEPER_REVISION")
        .unwrap();
    assert_eq!(revision["value"], pod["metadata"]["labels"]["pod-template-hash"]);
    eventually("the lock that nobody described", async || {
        space.api::<DistributedLock>().get_opt("report").await.unwrap()
    })
    .await;
    webhooks.kubectl(&space, &["delete", "deployment", "report"], &Value::Null);
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_deployment_that_is_scaled_up_at_once_are_ready_while_they_wait() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("scaled").await;
    let deployment = workload("Deployment", "report", json!({ "lockkeeper.io/lock": "report" }));
    let said = webhooks.kubectl(&space, &["create", "-f", "-"], &deployment);
    assert!(said.is_done, "{}", said.words);
    let pods = async |count: usize| {
        eventually("its pods", async || {
            let pods = space.api::<Pod>().list(&ListParams::default()).await.unwrap();
            (pods.items.len() == count).then_some(pods.items)
        })
        .await
    };
    let first = pods(1).await.remove(0).metadata.name;
    webhooks.kubectl(
        &space,
        &["scale", "deployment", "report", "--replicas", "3"],
        &Value::Null,
    );
    for pod in pods(3).await {
        let alone = pod.metadata.name == first;
        let path = if alone { "/readyz" } else { "/queuedz" };
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(sidecar(&pod)["readinessProbe"]["httpGet"]["path"], path);
    }
    webhooks.kubectl(&space, &["delete", "deployment", "report"], &Value::Null);
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_gives_its_command_gets_it_wrapped_and_the_binary_from_an_image_volume() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("given").await;
    let mut pod = marked("given");
    pod["spec"]["containers"][0]["args"] = json!(["--verbose", "$(HOME)"]);
    let pod = space.try_out(&pod).await.unwrap();
    assert_eq!(words(&pod), (wrapped(&["/app"]), json!(["--verbose", "$(HOME)"])));
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let binary = volumes
        .iter()
        .find(|volume| volume["name"] == "lockkeeper-bin")
        .unwrap();
    // The nodes of this cluster can mount images.
    assert!(binary["image"]["reference"].is_string(), "{binary}");
    assert_eq!(pod["spec"]["initContainers"].as_array().unwrap().len(), 1);
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_our_keys_is_not_touched_and_the_webhook_is_not_asked() {
    let Some(webhooks) = crate::webhooks::alone().await else {
        return;
    };
    let space = webhooks.namespace("unmarked").await;
    // The webhook may still be asked for what earlier tests have left.
    const SENT: u8 = 50;
    let before = webhooks.measured("lockkeeper_webhook_requests_total").await;
    for _ in 0..SENT {
        let pod = space.try_out(&plain("unmarked")).await.unwrap();
        assert_eq!(words(&pod).0, json!(["/app"]));
        assert_eq!(pod["spec"]["initContainers"], Value::Null);
    }
    // A page of metrics counts for 250 ms. So another request, which is counted, has to be seen.
    let marked = eventually("a request for a marked pod is counted", async || {
        space.try_out(&marked("marked")).await.unwrap();
        let now = webhooks.measured("lockkeeper_webhook_requests_total").await;
        (now > before).then_some(now - before)
    })
    .await;
    assert!(marked < f64::from(SENT), "{marked} requests");
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_keeps_its_class_of_service_in_the_eyes_of_the_api_server() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("classes").await;
    for (name, resources, class) in [
        ("best-effort", json!({}), "BestEffort"),
        (
            "burstable",
            json!({ "requests": { "memory": "1Mi" } }),
            "Burstable",
        ),
        (
            "guaranteed",
            json!({ "limits": { "cpu": "1", "memory": "1Mi" } }),
            "Guaranteed",
        ),
    ] {
        let mut pod = marked(name);
        pod["spec"]["containers"][0]["resources"] = resources;
        let pod = space.try_out(&pod).await.unwrap();
        sidecar(&pod);
        assert_eq!(pod["status"]["qosClass"], class, "{name}");
    }
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrapped_pod_is_let_into_a_restricted_namespace() {
    let Some(webhooks) = shared().await else { return };
    let level = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    let space = webhooks.labelled("restricted", level).await;
    let mut pod = marked("restricted");
    // The Pod Security level is in force: without a change, it refuses even the application's own container.
    let refusal = space.try_out(&pod).await.unwrap_err();
    assert!(
        refusal.contains("violates PodSecurity") && !refusal.contains("lockkeeper\""),
        "{refusal}"
    );
    pod["spec"]["containers"][0]["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    sidecar(&space.try_out(&pod).await.unwrap());
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_by_a_second_time_stays_as_it_is() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("twice").await;
    let once = space.admit(&marked("once")).await.unwrap();
    let mut again = json!({ "metadata": { "name": "twice" }, "spec": once["spec"] });
    for map in ["labels", "annotations"] {
        again["metadata"][map] = once["metadata"][map].clone();
    }
    let twice = space.admit(&again).await.unwrap();
    assert_eq!(twice["spec"], once["spec"]);
    for map in ["labels", "annotations"] {
        assert_eq!(twice["metadata"][map], once["metadata"][map]);
    }
    space.leave().await;
}
