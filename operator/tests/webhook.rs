//! The webhooks over real TLS, as an API server speaks with them.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::runtime::reflector;
use lockkeeper_operator::certificates::Served;
use lockkeeper_operator::certificates::authority::Issued;
use lockkeeper_operator::image::{Images, RegistryOptions};
use lockkeeper_operator::inject::{ClusterFacts, SidecarConfig};
use lockkeeper_operator::webhook::metrics::WebhookMetrics;
use lockkeeper_operator::webhook::{Admission, server};
use prometheus_client::registry::Registry;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[path = "support/tls.rs"]
mod tls;

use tls::{issued, trusting};

const NAME: &str = "lockkeeper-webhook.lockkeeper.svc";

/// The webhooks on a port of loopback.
struct Server {
    port: u16,
    served: Served,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    registry: Registry,
}

impl Server {
    async fn start(issued: &Issued) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = Served::default();
        served
            .set(issued.certificate.as_bytes(), issued.key.as_bytes())
            .unwrap();
        let mut registry = Registry::default();
        // Nothing that is asked for here makes it ask an API server.
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let (locks, _) = reflector::store();
        let sidecar = SidecarConfig {
            image: "registry.example/lockkeeper:1".to_owned(),
            pull_policy: None,
            resources: Default::default(),
            connect: Some("zk:2181".to_owned()),
            own_connect: "zk:2181".to_owned(),
            has_certificate: false,
            tick_time: Duration::from_secs(2),
            root: "/lockkeeper".to_owned(),
            readers: Vec::new(),
        };
        let images = Images::new(RegistryOptions {
            timeout: Duration::from_secs(1),
            plain_http: Vec::new(),
            authorities: None,
        });
        let facts = watch::Sender::new(ClusterFacts::default()).subscribe();
        let metrics = WebhookMetrics::register(&mut registry);
        let admission = Arc::new(Admission::new(client, locks, facts, sidecar, images, metrics));
        let (stop, stopped) = watch::channel(false);
        let tls = served.server_config().unwrap();
        let task = tokio::spawn(server::serve(listener, tls, admission, stopped));
        Self {
            port,
            served,
            stop,
            task,
            registry,
        }
    }

    async fn connect(
        &self,
        authorities: &str,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        trusting(authorities.as_bytes())
            .connect(ServerName::try_from(NAME).unwrap(), stream)
            .await
    }

    async fn send(&self, issued: &Issued, method: &str, path: &str, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
        let stream = self.connect(&issued.authorities).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", NAME);
        let response = sender
            .send_request(request.body(Full::new(Bytes::from(body))).unwrap())
            .await
            .unwrap();
        let status = response.status();
        (
            status,
            response.into_body().collect().await.unwrap().to_bytes().to_vec(),
        )
    }

    async fn review(&self, issued: &Issued, path: &str, kind: &str, object: &Value) -> Value {
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u-1", "kind": { "group": "", "version": "v1", "kind": kind }, "namespace": "shop",
            "operation": "CREATE", "object": object,
        } });
        let (status, body) = self
            .send(issued, "POST", path, review.to_string().into_bytes())
            .await;
        assert_eq!(status, StatusCode::OK);
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["response"]["uid"], "u-1");
        answer["response"].clone()
    }
}

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
            " ".repeat(9 << 20),
            StatusCode::BAD_REQUEST,
            "cannot read the body",
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
