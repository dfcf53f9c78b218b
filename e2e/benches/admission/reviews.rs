//! Calls the webhook as the API server does: AdmissionReviews by HTTP/1.1, over permanent TLS connections.

use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::beside::Tenant;
use lockkeeper_product::chart::SYSTEM;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::tls::trusting;
use crate::webhooks::Webhooks;

const NAME: &str = "lockkeeper-webhook.lockkeeper-system.svc";

/// Connections to the webhook.
pub struct Reviewer {
    connections: Vec<Mutex<SendRequest<Full<Bytes>>>>,
}

impl Reviewer {
    pub async fn connect(webhooks: &Webhooks, space: &Tenant, connections: usize) -> Self {
        let secrets: Api<Secret> = Api::namespaced(space.client.clone(), SYSTEM);
        let data = secrets.get("lockkeeper-webhook").await.unwrap().data.unwrap();
        let connector = trusting(&data["ca.crt"].0);
        let connect = (0..connections).map(async |_| {
            let stream = webhooks.connections().remove(0);
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            let stream = TcpStream::from_std(stream).unwrap();
            let name = ServerName::try_from(NAME).unwrap();
            let stream = connector.connect(name, stream).await.unwrap();
            let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            Mutex::new(sender)
        });
        Self {
            connections: join_all(connect).await,
        }
    }

    /// One review on each connection, all at once: returns how long each took. It checks the answers when all
    /// are there, because that takes processor time, too.
    pub async fn round(&self, body: &Bytes) -> Vec<Duration> {
        let reviews = self.connections.iter().map(async |connection| {
            let mut connection = connection.lock().await;
            connection.ready().await.unwrap();
            let begun = BootInstant::now();
            let request = Request::post("/pods?timeout=5s")
                .header("host", NAME)
                .header("content-type", "application/json")
                .body(Full::new(body.clone()))
                .unwrap();
            let response = connection.send_request(request).await.unwrap();
            let answer = response.into_body().collect().await.unwrap().to_bytes();
            (BootInstant::now() - begun, answer)
        });
        let answers = join_all(reviews).await;
        let is_good = |answer: &Bytes| {
            let answer: Value = serde_json::from_slice(answer).unwrap();
            let response = &answer["response"];
            response["allowed"] == true && response["patch"].is_string()
        };
        for (_, answer) in &answers {
            assert!(is_good(answer), "{answer:?}");
        }
        answers.into_iter().map(|(took, _)| took).collect()
    }
}

/// The review of a pod as the API server would send it: with its defaults, and with the managed fields.
pub async fn review(space: &Tenant, pod: &Value) -> Bytes {
    let mut unmarked = pod.clone();
    let annotations = unmarked["metadata"]
        .as_object_mut()
        .and_then(|metadata| metadata.remove("annotations"));
    let mut object = space.try_out(&unmarked).await.unwrap();
    object["metadata"]["annotations"] = annotations.expect("it is marked");
    let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
    let resource = json!({ "group": "", "version": "v1", "resource": "pods" });
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource,
        "requestKind": kind, "requestResource": resource, "name": object["metadata"]["name"],
        "namespace": space.name, "operation": "CREATE",
        "userInfo": { "username": "admin", "groups": ["system:masters", "system:authenticated"] },
        "object": object, "oldObject": null, "dryRun": true,
        "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"] },
    } });
    Bytes::from(review.to_string())
}
