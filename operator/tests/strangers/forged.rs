//! Reviews that no API server sent.

use serde_json::{Value, json};

use crate::api::{Http, answer};
use crate::tls::issued;
use crate::webhook::{NAME, Server, review};
use lockkeeper_operator::admission::callers::Callers;

/// No server listens there: what counts is with which Secrets it would have been asked.
const IMAGE: &str = "127.0.0.1:1/team/private:1";

/// A pod that does not say what it starts, of a ReplicaSet or without an owner.
fn pod(owner: Option<&str>, image: &str, secret: &str) -> Value {
    let owners = owner.map(|uid| {
        json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": uid, "controller": true }])
    });
    json!({
        "metadata": { "name": "app", "annotations": { "lockkeeper.io/lock": "app", "lockkeeper.io/guard": "wrap" },
                      "ownerReferences": owners.unwrap_or(json!([])) },
        "spec": { "containers": [{ "name": "app", "image": image }], "imagePullSecrets": [{ "name": secret }] },
    })
}

/// A namespace with a ReplicaSet and two Secrets.
async fn api() -> Http {
    Http::start(|request| {
        let found = match request.uri().path() {
            "/apis/apps/v1/namespaces/shop/replicasets/app" => json!({
                "metadata": { "name": "app", "namespace": "shop", "uid": "true" },
                "spec": { "replicas": 2, "selector": {}, "template": { "spec": {
                    "containers": [{ "name": "app", "image": IMAGE }], "imagePullSecrets": [{ "name": "pull" }],
                } } },
            }),
            path if path.starts_with("/api/v1/namespaces/shop/secrets/") => {
                json!({ "metadata": { "name": "pull" }, "data": {} })
            }
            _ => {
                let status = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" });
                return answer(404, &[("content-type", "application/json")], status.to_string());
            }
        };
        answer(200, &[("content-type", "application/json")], found.to_string())
    })
    .await
}

/// Whether a review of this pod makes the operator read a Secret; and what it says.
async fn reads_a_secret(callers: &Callers, pod: &Value) -> (bool, String) {
    let (issued, api) = (issued(NAME, None), api().await);
    let server = Server::start_with(&issued, &format!("http://{}", api.name), callers).await;
    let response = server.review(&issued, "/pods", "Pod", pod).await;
    assert_eq!(response["allowed"], false, "{response}");
    let reads = api.seen().iter().any(|line| line.contains("/secrets/"));
    (reads, response["status"]["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_forged_review_makes_the_operator_read_no_secret() {
    for (forged, what) in [
        (pod(None, IMAGE, "pull"), "a pod without an owner"),
        (
            pod(Some("guessed"), IMAGE, "pull"),
            "a workload whose uid is guessed",
        ),
        (
            pod(Some("true"), "127.0.0.1:1/team/other:1", "pull"),
            "another image of the registry",
        ),
        (
            pod(Some("true"), IMAGE, "other"),
            "another Secret of the namespace",
        ),
    ] {
        let (reads, message) = reads_a_secret(&Callers::Anybody, &forged).await;
        assert!(!reads, "{what}");
        assert!(
            message.contains("pull secrets were not used"),
            "{what}: {message}"
        );
    }
}

#[tokio::test]
async fn a_pod_as_its_workload_describes_it_is_looked_up_with_its_pull_secret() {
    let (reads, message) = reads_a_secret(&Callers::Anybody, &pod(Some("true"), IMAGE, "pull")).await;
    assert!(reads && !message.contains("not used"), "{message}");
}

/// A review of a pod that names the lock `app` in `namespace`, with what else is in its metadata and its `spec`.
fn review_of_a_pod(namespace: &str, metadata: &Value, spec: &Value) -> Vec<u8> {
    let mut pod = pod(None, IMAGE, "pull");
    json_patch::merge(&mut pod["metadata"], metadata);
    json_patch::merge(&mut pod["spec"], spec);
    review(namespace, "Pod", &pod).into_bytes()
}

#[tokio::test]
async fn what_a_review_says_is_a_name_leads_no_request_elsewhere() {
    let owner = |kind: &str, name: &str| {
        let api = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        json!({ "ownerReferences": [{ "apiVersion": api, "kind": kind, "name": name, "uid": "true", "controller": true }] })
    };
    let (issued, api) = (issued(NAME, None), api().await);
    let server = Server::start_with(&issued, &format!("http://{}", api.name), &Callers::Anybody).await;
    for name in ["?", "app?limit=1", "../../secrets", "a/b", "%2e%2e", "App"] {
        for kind in ["ReplicaSet", "StatefulSet", "DaemonSet", "Job"] {
            let body = review_of_a_pod("shop", &owner(kind, name), &json!({}));
            server.send(&issued, "POST", "/pods", body).await;
        }
        let account = json!({ "serviceAccountName": name, "imagePullSecrets": [{ "name": name }] });
        let body = review_of_a_pod("shop", &owner("ReplicaSet", "app"), &account);
        server.send(&issued, "POST", "/pods", body).await;
    }
    let seen = api.seen();
    assert!(!seen.is_empty(), "the ReplicaSet that has a name was asked for");
    let app = "GET /apis/apps/v1/namespaces/shop/replicasets/app";
    assert!(seen.iter().all(|line| line == app), "{seen:?}");
}

#[tokio::test]
async fn a_review_that_names_another_namespace_than_its_object_is_refused_with_a_sentence() {
    let (issued, api) = (issued(NAME, None), api().await);
    let server = Server::start_with(&issued, &format!("http://{}", api.name), &Callers::Anybody).await;
    for (namespace, metadata, sentence) in [
        (
            "shop",
            json!({ "namespace": "evil" }),
            "of another namespace than its object",
        ),
        (
            "",
            json!({ "namespace": "shop" }),
            "of another namespace than its object",
        ),
        ("shop/pods?", json!({}), "no name of a namespace"),
        ("..", json!({ "namespace": ".." }), "no name of a namespace"),
    ] {
        let body = review_of_a_pod(namespace, &metadata, &json!({}));
        let (status, answer) = server.send(&issued, "POST", "/pods", body).await;
        let answer = String::from_utf8(answer).unwrap();
        assert_eq!(status, 400, "{answer}");
        assert!(answer.contains(sentence), "{answer}");
    }
    assert!(api.seen().is_empty(), "{:?}", api.seen());
    let body = review_of_a_pod("shop", &json!({ "namespace": "shop" }), &json!({}));
    let (status, _) = server.send(&issued, "POST", "/pods", body).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_forged_review_is_told_of_an_autoscaler_and_not_its_name() {
    let api = Http::start(|_| {
        let items = ["secret-name", "another"].map(|name| {
            json!({
                "metadata": { "name": name },
                "spec": { "maxReplicas": 9, "scaleTargetRef": { "kind": "Deployment", "name": "app" } },
            })
        });
        let list = json!({ "metadata": {}, "items": items });
        answer(200, &[("content-type", "application/json")], list.to_string())
    })
    .await;
    let issued = issued(NAME, None);
    let server = Server::start_with(&issued, &format!("http://{}", api.name), &Callers::Anybody).await;
    let forged = json!({
        "metadata": { "name": "app", "annotations": { "lockkeeper.io/lock": "app" } },
        "spec": { "replicas": 2, "selector": {}, "template": { "spec": { "containers": [{ "name": "app" }] } } },
    });
    let response = server.review(&issued, "/workloads", "Deployment", &forged).await;
    let warnings = response["warnings"].to_string();
    assert_eq!(
        warnings
            .matches("a HorizontalPodAutoscaler scales this Deployment")
            .count(),
        1,
        "{response}"
    );
    assert!(!warnings.contains("secret-name"), "{warnings}");
}
