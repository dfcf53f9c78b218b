//! The webhooks on a port of loopback, as an API server speaks with them.

#![allow(dead_code, reason = "each test uses its part of it")]

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::runtime::{reflector, watcher};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_operator::admission::callers::Callers;
use lockkeeper_operator::admission::certificates::Served;
use lockkeeper_operator::admission::certificates::authority::Issued;
use lockkeeper_operator::admission::image::{Images, RegistryOptions};
use lockkeeper_operator::admission::inject::{ClusterFacts, SidecarConfig};
use lockkeeper_operator::admission::webhook::ensembles::Reached;
use lockkeeper_operator::admission::webhook::lookups::Lookups;
use lockkeeper_operator::admission::webhook::metrics::WebhookMetrics;
use lockkeeper_operator::admission::webhook::{Admission, server};
use lockkeeper_operator::problem::Problem;
use prometheus_client::registry::Registry;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::tls::trusting;

pub const NAME: &str = "lockkeeper-webhook.lockkeeper.svc";

/// The ensemble of every lock.
struct Anywhere;

impl Reached for Anywhere {
    fn permit(&self, _: Option<&DistributedLock>) -> Result<(), Problem> {
        Ok(())
    }

    fn id(&self, _: Option<&DistributedLock>) -> Option<Uuid> {
        Some(Uuid::from_u128(1))
    }
}

/// A review of an object that is to be created in a namespace.
pub fn review(namespace: &str, kind: &str, object: &Value) -> String {
    let request = json!({ "uid": "u-1", "kind": { "group": "", "version": "v1", "kind": kind },
        "namespace": namespace, "operation": "CREATE", "object": object });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request }).to_string()
}

/// The webhooks on a port of loopback.
pub struct Server {
    pub port: u16,
    pub served: Served,
    pub stop: watch::Sender<bool>,
    pub task: JoinHandle<()>,
    pub registry: Registry,
}

impl Server {
    pub async fn start(issued: &Issued) -> Self {
        // Nothing that is asked for here makes it ask an API server.
        Self::start_with(issued, "http://127.0.0.1:1", &Callers::Anybody).await
    }

    /// With an API server at a URL, for these callers.
    pub async fn start_with(issued: &Issued, api: &str, callers: &Callers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = Served::default();
        served
            .set(issued.certificate.as_bytes(), issued.key.as_bytes())
            .unwrap();
        let mut registry = Registry::default();
        let client = Client::try_from(kube::Config::new(api.parse().unwrap())).unwrap();
        let (locks, mut writer) = reflector::store();
        let mut app = DistributedLock::new("app", DistributedLockSpec::default());
        app.metadata.namespace = Some("shop".to_owned());
        writer.apply_watcher_event(&watcher::Event::Apply(app));
        let sidecar = SidecarConfig {
            image: "registry.example/lockkeeper:1".to_owned(),
            pull_policy: None,
            resources: Default::default(),
            connect: Some("zk:2181".to_owned()),
            own_connect: "zk:2181".to_owned(),
            has_certificate: false,
            tick_time: Duration::from_secs(2),
            root: "/lockkeeper".to_owned(),
            log_format: lockkeeper_daemon::log::LogFormat::Json,
            readers: Vec::new(),
        };
        let images = Images::new(RegistryOptions {
            timeout: Duration::from_secs(1),
            plain_http: Vec::new(),
            authorities: None,
            networks: Vec::new(),
            redirects: Vec::new(),
        })
        .unwrap();
        let facts = watch::Sender::new(ClusterFacts::default()).subscribe();
        let metrics = WebhookMetrics::register(&mut registry);
        let admission = Admission {
            client,
            locks,
            ensembles: Box::new(Anywhere),
            facts,
            nodes: Arc::default(),
            mounts_images: true,
            sidecar,
            images,
            metrics,
            lookups: Lookups::default(),
            are_callers_known: callers.are_known(),
        };
        let (stop, stopped) = watch::channel(false);
        let tls = served.server_config(callers).unwrap();
        let task = tokio::spawn(server::serve(listener, tls, Arc::new(admission), stopped));
        Self {
            port,
            served,
            stop,
            task,
            registry,
        }
    }

    pub async fn connect(
        &self,
        authorities: &str,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        trusting(authorities.as_bytes())
            .connect(ServerName::try_from(NAME).unwrap(), stream)
            .await
    }

    pub async fn send(
        &self,
        issued: &Issued,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> (StatusCode, Vec<u8>) {
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

    pub async fn review(&self, issued: &Issued, path: &str, kind: &str, object: &Value) -> Value {
        let review = review("shop", kind, object).into_bytes();
        let (status, body) = self.send(issued, "POST", path, review).await;
        assert_eq!(status, StatusCode::OK);
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["response"]["uid"], "u-1");
        answer["response"].clone()
    }
}
