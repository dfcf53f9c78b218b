//! What the webhook asks an API server beside the pod: its lock, where that was not seen yet, and its owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lockkeeper_operator::admission::callers::Callers;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::api::{Answer, Http, answer};
use crate::tls::issued;
use crate::webhook::{NAME, Server, review as review_of};

fn with(status: u16, body: &Value) -> Answer {
    answer(status, &[("content-type", "application/json")], body.to_string())
}

/// What becomes of a pod that names the lock `late`, with an API server that answers so.
async fn reviewed(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Value {
    let api = Http::start(move |request| answer(request.uri().path())).await;
    let issued = issued(NAME, None);
    let server = Server::start_with(&issued, &format!("http://{}", api.name), &Callers::Anybody).await;
    let pod = json!({
        "metadata": { "name": "app", "annotations": { "lockkeeper.io/lock": "late" } },
        "spec": { "containers": [{ "name": "app", "image": "app:1", "command": ["/app"] }] },
    });
    server.review(&issued, "/pods", "Pod", &pod).await
}

const LATE: &str = "/apis/lockkeeper.io/v1alpha1/namespaces/shop/distributedlocks/late";

/// The same with one that has this at the lock's place.
async fn review(status: u16, found: Value) -> Value {
    reviewed(move |path| match path {
        LATE => with(status, &found),
        other => panic!("no client asks for {other}"),
    })
    .await
}

fn patch(response: &Value) -> String {
    assert_eq!(response["allowed"], true, "{response}");
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    String::from_utf8(patch).unwrap()
}

#[tokio::test]
async fn a_lock_that_was_made_a_moment_before_its_pod_is_the_one_that_the_pod_gets() {
    let lock = json!({
        "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
        "metadata": { "name": "late", "namespace": "shop" }, "spec": { "sessionTimeout": "31s" },
    });
    let response = review(200, lock).await;
    assert!(patch(&response).contains(r#""31s""#), "{}", patch(&response));
}

#[tokio::test]
async fn a_lock_that_nobody_has_described_has_the_defaults() {
    let status = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" });
    let response = review(404, status).await;
    assert!(patch(&response).contains(r#""15s""#), "{}", patch(&response));
}

#[tokio::test]
async fn a_pod_does_not_get_the_defaults_because_its_lock_could_not_be_read() {
    let status = json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                         "message": "distributedlocks \"late\" is forbidden" });
    let response = review(403, status).await;
    assert_eq!(response["allowed"], false, "{response}");
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("the settings of DistributedLock `late` cannot be read at the moment"),
        "{message}"
    );
}

#[tokio::test]
async fn a_pod_is_not_made_without_its_certificate_because_the_secret_could_not_be_read_just_then() {
    let lock = json!({
        "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
        "metadata": { "name": "late", "namespace": "shop" },
        "spec": { "zookeeper": { "connect": "tcp+tls://zk:2281", "tlsSecret": { "name": "tls" } } },
    });
    for (code, reason, is_admitted) in [
        (500, "InternalError", false),
        (403, "Forbidden", true),
        (404, "NotFound", true),
    ] {
        let lock = lock.clone();
        let status = json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason });
        let response = reviewed(move |path| match path {
            LATE => with(200, &lock),
            "/api/v1/namespaces/shop/secrets/tls" => with(code, &status),
            other => panic!("no client asks for {other}"),
        })
        .await;
        assert_eq!(response["allowed"], is_admitted, "{code}: {response}");
        let message = response["status"]["message"]
            .as_str()
            .unwrap_or("its Secret `tls`");
        assert!(message.contains("its Secret `tls`"), "{message}");
    }
}

#[tokio::test]
async fn the_pods_of_a_statefulset_that_goes_in_order_are_ready_while_they_wait_and_can_be_scaled_up() {
    for (policy, path) in [
        (json!(null), "/queuedz"),
        (json!("OrderedReady"), "/queuedz"),
        (json!("Parallel"), "/readyz"),
    ] {
        let set = json!({
            "metadata": { "name": "app", "namespace": "shop", "uid": "u" },
            "spec": { "replicas": 1, "podManagementPolicy": policy, "selector": {}, "template": {} },
        });
        let api = Http::start(move |request| match request.uri().path() {
            "/apis/apps/v1/namespaces/shop/statefulsets/app" => with(200, &set),
            other => panic!("no client asks for {other}"),
        })
        .await;
        let issued = issued(NAME, None);
        let server = Server::start_with(&issued, &format!("http://{}", api.name), &Callers::Anybody).await;
        let pod = json!({
            "metadata": { "name": "app-0", "annotations": { "lockkeeper.io/lock": "app" }, "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "app", "uid": "u", "controller": true }] },
            "spec": { "containers": [{ "name": "app", "image": "app:1", "command": ["/app"] }] },
        });
        let response = server.review(&issued, "/pods", "Pod", &pod).await;
        assert!(patch(&response).contains(path), "{policy}: {}", patch(&response));
    }
}

/// A pod of the lock `app` whose owner is of this kind.
fn pod_of(kind: &str) -> Value {
    json!({
        "metadata": { "name": "app-0", "annotations": { "lockkeeper.io/lock": "app" }, "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": kind, "name": "app", "uid": "u", "controller": true }] },
        "spec": { "containers": [{ "name": "app", "image": "app:1", "command": ["/app"] }] },
    })
}

/// An API server with a ReplicaSet of one pod that belongs to this.
async fn with_set_of(version: &str, kind: &str) -> Http {
    let set = json!({
        "metadata": { "name": "app", "namespace": "shop", "uid": "u", "ownerReferences": [
            { "apiVersion": version, "kind": kind, "name": "app", "uid": "o", "controller": true }] },
        "spec": { "replicas": 1, "selector": {}, "template": {} },
    });
    Http::start(move |request| match request.uri().path() {
        "/apis/apps/v1/namespaces/shop/replicasets/app" => with(200, &set),
        other => panic!("no client asks for {other}"),
    })
    .await
}

#[tokio::test]
async fn a_pod_of_a_kind_that_does_not_say_how_many_it_wants_is_ready_while_it_waits_and_its_rollout_goes_on()
{
    for (version, kind, path) in [
        ("apps/v1", "Deployment", "/readyz"),
        ("argoproj.io/v1alpha1", "Rollout", "/queuedz"),
        ("example.org/v1", "Deployment", "/queuedz"),
    ] {
        let api = with_set_of(version, kind).await;
        let issued = issued(NAME, None);
        let server = Server::start_with(&issued, &format!("http://{}", api.name), &Callers::Anybody).await;
        let response = server
            .review(&issued, "/pods", "Pod", &pod_of("ReplicaSet"))
            .await;
        assert!(
            patch(&response).contains(path),
            "{version} {kind}: {}",
            patch(&response)
        );
    }
}

#[tokio::test]
async fn a_review_that_calls_an_owner_something_else_changes_nothing_for_its_pods() {
    let api = with_set_of("apps/v1", "Deployment").await;
    let issued = issued(NAME, None);
    let server = Server::start_with(&issued, &format!("http://{}", api.name), &Callers::Anybody).await;
    for (kind, path) in [("DaemonSet", "/queuedz"), ("ReplicaSet", "/readyz")] {
        let response = server.review(&issued, "/pods", "Pod", &pod_of(kind)).await;
        assert!(patch(&response).contains(path), "{kind}: {}", patch(&response));
    }
}

/// An API server that takes requests and answers none, and how many it had at once at most.
async fn silent() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let name = format!("http://{}", listener.local_addr().unwrap());
    let most = Arc::<AtomicUsize>::default();
    let (open, counted) = (Arc::<AtomicUsize>::default(), Arc::clone(&most));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (open, counted) = (Arc::clone(&open), Arc::clone(&counted));
            tokio::spawn(async move {
                let now = open.fetch_add(1, Ordering::SeqCst) + 1;
                counted.fetch_max(now, Ordering::SeqCst);
                let mut bytes = [0; 1024];
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (name, most)
}

#[tokio::test]
async fn a_crowd_of_forged_reviews_asks_the_api_server_few_questions_at_once_and_each_is_answered() {
    let (api, most) = silent().await;
    let issued = issued(NAME, None);
    let server = Server::start_with(&issued, &api, &Callers::Anybody).await;
    let reviews = (0..100).map(|at| {
        let mut pod = pod_of("ReplicaSet");
        pod["metadata"]["ownerReferences"][0]["name"] = json!(format!("app-{at}"));
        let (server, issued) = (&server, &issued);
        async move { server.review(issued, "/pods", "Pod", &pod).await }
    });
    for response in futures_util::future::join_all(reviews).await {
        assert!(patch(&response).contains("/queuedz"), "{response}");
    }
    let most = most.load(Ordering::SeqCst);
    assert!((1..=8).contains(&most), "{most} at once");
}

#[tokio::test]
async fn a_review_whose_api_server_has_hung_up_is_counted() {
    let (api, most) = silent().await;
    let issued = issued(NAME, None);
    let server = Server::start_with(&issued, &api, &Callers::Anybody).await;
    let review = review_of("shop", "Pod", &pod_of("ReplicaSet"));
    let mut stream = server.connect(&issued.authorities).await.unwrap();
    let head = format!(
        "POST /pods HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: {}\r\n\r\n",
        review.len()
    );
    stream.write_all((head + &review).as_bytes()).await.unwrap();
    // It asks for the owner of the pod, and waits.
    while most.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream.shutdown().await.unwrap();
    let counted = r#"lockkeeper_webhook_requests_total{webhook="pods",result="abandoned"} 1"#;
    let mut text = String::new();
    let is_counted = async {
        while !text.contains(counted) {
            text.clear();
            prometheus_client::encoding::text::encode(&mut text, &server.registry).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), is_counted).await;
    assert!(waited.is_ok(), "{text}");
}
