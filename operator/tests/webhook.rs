//! The webhooks over real TLS, as an API server speaks with them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

#[path = "support/tls.rs"]
mod tls;
#[path = "support/webhook.rs"]
mod webhook;

use tls::issued;
use webhook::{NAME, Server};

fn pod() -> Value {
    json!({
        "metadata": { "name": "app", "annotations": { "lockkeeper.io/lock": "app" } },
        "spec": { "containers": [{ "name": "app", "image": "app:1", "command": ["/app"] }] },
    })
}

#[tokio::test]
async fn the_patch_makes_a_guarded_pod_of_a_marked_one() {
    let issued = issued(NAME, None);
    let server = Server::start(&issued).await;
    let response = server.review(&issued, "/pods", "Pod", &pod()).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut patched = pod();
    json_patch::patch(&mut patched, &patch).unwrap();
    assert_eq!(patched["spec"]["initContainers"][1]["name"], "lockkeeper");
    assert_eq!(
        patched["spec"]["containers"][0]["command"][0],
        "/lockkeeper/lockkeeper"
    );
    // Asked again, there is nothing left to change.
    let again = server.review(&issued, "/pods", "Pod", &patched).await;
    assert_eq!(again["allowed"], true);
    assert_eq!(again["patch"], Value::Null);

    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &server.registry).unwrap();
    let counted = r#"lockkeeper_webhook_requests_total{webhook="pods",result="wrap"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn each_pod_gets_a_token_of_its_own_for_its_hooks_and_keeps_it_when_the_webhook_is_asked_again() {
    let issued = issued(NAME, None);
    let server = Server::start(&issued).await;
    let mut hooked = pod();
    hooked["spec"]["containers"][0]["lifecycle"] =
        json!({ "preStop": { "httpGet": { "path": "/drain", "port": 8080 } } });
    let mut paths = Vec::new();
    for _ in 0..2 {
        let response = server.review(&issued, "/pods", "Pod", &hooked).await;
        let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut patched = hooked.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        let again = server.review(&issued, "/pods", "Pod", &patched).await;
        assert_eq!(again["patch"], Value::Null);
        let path = &patched["spec"]["containers"][0]["lifecycle"]["preStop"]["httpGet"]["path"];
        let sidecar = &patched["spec"]["initContainers"][1]["env"];
        let mut variables = sidecar.as_array().unwrap().iter();
        let token = variables
            .find(|var| var["name"] == "LOCKKEEPER_APP_TOKEN")
            .unwrap();
        let token = token["value"].as_str().unwrap();
        assert_eq!(*path, format!("/app/{token}/preStop"));
        paths.push(path.clone());
    }
    assert_ne!(paths[0], paths[1]);
}

#[tokio::test]
async fn a_bad_pod_is_denied_with_a_sentence_and_an_unmarked_one_is_not_touched() {
    let issued = issued(NAME, None);
    let server = Server::start(&issued).await;
    let mut bad = pod();
    bad["spec"]["hostPID"] = json!(true);
    let response = server.review(&issued, "/pods", "Pod", &bad).await;
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("Lockkeeper: the pod has hostPID"),
        "{message}"
    );
    let mut unmarked = pod();
    unmarked["metadata"] = json!({ "name": "app" });
    let response = server.review(&issued, "/pods", "Pod", &unmarked).await;
    assert_eq!(response, json!({ "uid": "u-1", "allowed": true }));
}

#[tokio::test]
async fn what_is_no_review_gets_an_error_and_no_answer_that_lets_a_pod_in() {
    let issued = issued(NAME, None);
    let server = Server::start(&issued).await;
    let old = json!({ "apiVersion": "admission.k8s.io/v1beta1", "request": {
        "uid": "u", "kind": { "kind": "Pod" }, "operation": "CREATE", "object": {} } });
    for (method, path, body, status, part) in [
        (
            "POST",
            "/pods",
            "nonsense".to_owned(),
            StatusCode::BAD_REQUEST,
            "not an AdmissionReview",
        ),
        (
            "POST",
            "/pods",
            old.to_string(),
            StatusCode::BAD_REQUEST,
            "admission.k8s.io/v1beta1",
        ),
        (
            "GET",
            "/pods",
            String::new(),
            StatusCode::METHOD_NOT_ALLOWED,
            "send a POST",
        ),
        (
            "POST",
            "/elsewhere",
            String::new(),
            StatusCode::NOT_FOUND,
            "the paths are",
        ),
        (
            "POST",
            "/pods",
            " ".repeat(4 << 20),
            StatusCode::PAYLOAD_TOO_LARGE,
            "it has more than 3145728 bytes",
        ),
    ] {
        let (answered, body) = server.send(&issued, method, path, body.into_bytes()).await;
        let body = String::from_utf8(body).unwrap();
        assert_eq!(answered, status, "{path}: {body}");
        assert!(body.contains(part), "{body}");
    }
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart_and_a_broken_one_is_not() {
    let first = issued(NAME, None);
    let server = Server::start(&first).await;
    let second = issued(NAME, Some(&first));
    server.served.set(b"nonsense", second.key.as_bytes()).unwrap_err();
    server
        .served
        .set(first.certificate.as_bytes(), second.key.as_bytes())
        .unwrap_err();
    assert!(server.connect(&first.authorities).await.is_ok());
    server
        .served
        .set(second.certificate.as_bytes(), second.key.as_bytes())
        .unwrap();
    assert!(server.connect(&second.authorities).await.is_ok());
    assert!(server.connect(&first.authorities).await.is_err());
}

#[tokio::test]
async fn a_connection_stays_open_for_as_long_as_an_api_server_keeps_it_for_its_next_review() {
    let issued = issued(NAME, None);
    let server = Server::start(&issued).await;
    let stream = server.connect(&issued.authorities).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for _ in 0..2 {
        let request = Request::post("/pods").header("host", NAME);
        let request = request.body(Full::new(Bytes::from("nonsense"))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        response.into_body().collect().await.unwrap();
        // The server asks for the next request.
        tokio::task::yield_now().await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(90)).await;
        tokio::time::resume();
    }
}

#[tokio::test]
async fn an_open_connection_does_not_hold_up_the_end() {
    let issued = issued(NAME, None);
    let server = Server::start(&issued).await;
    let idle = server.connect(&issued.authorities).await.unwrap();
    server.stop.send_replace(true);
    tokio::time::timeout(Duration::from_secs(20), server.task)
        .await
        .expect("the server ends")
        .unwrap();
    drop(idle);
}

#[tokio::test]
async fn reviews_of_fifty_pods_at_once_are_answered_and_their_time_is_shown() {
    let issued = issued(NAME, None);
    let server = Server::start(&issued).await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let begun = tokio::time::Instant::now();
        let pod = pod();
        let reviews = (0..50).map(|_| async {
            let response = server.review(&issued, "/pods", "Pod", &pod).await;
            assert_eq!(response["allowed"], true);
            begun.elapsed()
        });
        times.extend(futures_util::future::join_all(reviews).await);
    }
    times.sort();
    println!(
        "50 at once, each with a new connection and a debug build: p50 {:?}, p99 {:?}",
        times[250], times[495]
    );
}

#[tokio::test]
async fn a_review_of_too_many_parts_is_refused_before_it_is_read() {
    let issued = issued(NAME, None);
    let server = Server::start(&issued).await;
    // Few bytes, and not even a review: it has been weighed only.
    let parts = format!("[{}0]", "{\"a\":1},".repeat(20_000));
    let (status, body) = server.send(&issued, "POST", "/pods", parts.into_bytes()).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let said = String::from_utf8(body).unwrap();
    assert!(said.contains("too many parts"), "{said}");
}
