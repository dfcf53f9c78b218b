//! Probes and metrics: `/livez`, `/readyz` and `/metrics` over HTTP, for kubelet and Prometheus.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, StatusCode};
use lockkeeper_daemon::accept::{self, Stopping};
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::http::{self, Answer, Routes, text};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

const PLAIN: &str = "text/plain; charset=utf-8";

/// OpenMetrics 1.0, section "Content Type".
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What has to be known before the operator is ready, each with a name for people.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness {
    parts: Vec<(&'static str, watch::Receiver<bool>)>,
}

/// For how long a page of metrics is given to all that ask. It may have some megabytes, and a client that does not read
/// keeps its page until it is given up: so there are few pages, however many ask.
const SHARED: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Admin {
    readiness: Readiness,
    registry: Registry,
    /// The last page of metrics.
    metrics: Mutex<Option<(Instant, Bytes)>>,
}

#[derive(Clone)]
struct Pages(Arc<Admin>);

/// A bound port.
#[derive(Debug)]
pub(crate) struct AdminServer {
    listener: TcpListener,
}

// === impl Readiness ===

impl Readiness {
    /// One more part; ready while all parts are true.
    pub(crate) fn with(mut self, name: &'static str, part: watch::Receiver<bool>) -> Self {
        self.parts.push((name, part));
        self
    }

    fn missing(&self) -> Vec<&'static str> {
        let missing = self.parts.iter().filter(|(_, part)| !*part.borrow());
        missing.map(|(name, _)| *name).collect()
    }
}

// === impl Admin ===

impl Admin {
    pub(crate) fn new(readiness: Readiness, registry: Registry) -> Self {
        Self {
            readiness,
            registry,
            metrics: Mutex::default(),
        }
    }

    fn metrics(&self) -> Result<Bytes, std::fmt::Error> {
        let mut last = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, page)) = &*last
            && at.elapsed() < SHARED
        {
            return Ok(page.clone());
        }
        let mut page = String::new();
        encode(&mut page, &self.registry)?;
        let page = Bytes::from(page);
        *last = Some((Instant::now(), page.clone()));
        Ok(page)
    }

    fn page(&self, request: &Request<Incoming>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return http::wrong_method(request, "GET");
        }
        match request.uri().path() {
            // Any answer means that the process runs.
            "/livez" => text(StatusCode::OK, PLAIN, "the operator runs\n"),
            "/readyz" => match self.readiness.missing().as_slice() {
                [] => text(StatusCode::OK, PLAIN, "ready\n"),
                missing => {
                    let missing = format!("not read yet: {}\n", missing.join(", "));
                    text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, missing)
                }
            },
            "/metrics" => match self.metrics() {
                Ok(page) => text(StatusCode::OK, OPEN_METRICS, page),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, error.to_string()),
            },
            _ => http::not_found(request, "/livez, /readyz and /metrics"),
        }
    }
}

impl Routes for Pages {
    async fn answer(self, request: Request<Incoming>, _: Stopping) -> Answer {
        self.0.page(&request)
    }
}

// === impl AdminServer ===

impl AdminServer {
    /// Listens. To be called in a tokio runtime.
    ///
    /// # Errors
    /// When the address is in use, or is not one of this machine.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let listener = accept::listen(address).map_err(|error| {
            let sentence =
                format!("cannot listen on {address} for probes: {error}; choose another --admin-listen");
            Failure::unavailable(sentence)
        })?;
        Ok(Self { listener })
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self, admin: Admin) {
        http::serve(self.listener, Pages(Arc::new(admin)), pending()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_operator_is_ready_when_all_parts_are_and_says_what_is_missing() {
        let [pods, locks] = [(); 2].map(|()| watch::Sender::new(false));
        let readiness = Readiness::default()
            .with("pods", pods.subscribe())
            .with("locks", locks.subscribe());
        let mut registry = Registry::default();
        let metrics = crate::metrics::Metrics::register(&mut registry);
        let server = AdminServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.listener.local_addr().unwrap();
        let asking = async {
            pods.send_replace(true);
            let answer = ask(address, "/readyz").await;
            assert!(
                answer.starts_with("HTTP/1.1 503") && answer.contains("not read yet: locks"),
                "{answer}"
            );
            locks.send_replace(true);
            assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));
            assert!(ask(address, "/livez").await.starts_with("HTTP/1.1 200"));
            assert!(ask(address, "/x").await.starts_with("HTTP/1.1 404"));
            metrics.wrote("status");
            let page = ask(address, "/metrics").await;
            assert!(
                page.contains("lockkeeper_operator_api_writes_total{kind=\"status\"} 1"),
                "{page}"
            );
        };
        tokio::select! {
            () = server.serve(Admin::new(readiness, registry)) => unreachable!("it serves until it is dropped"),
            () = asking => {}
        }
    }

    #[tokio::test]
    async fn a_probe_is_answered_within_the_kubelets_second_behind_300_silent_connections() {
        let server = AdminServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.listener.local_addr().unwrap();
        let asking = async {
            // The best of five rounds: on a loaded machine a single round may take long.
            for _ in 0..5 {
                let mut silent = Vec::new();
                for _ in 0..300 {
                    silent.push(TcpStream::connect(address).await.unwrap());
                }
                let answer = tokio::time::timeout(Duration::from_secs(1), ask(address, "/livez")).await;
                if let Ok(answer) = answer {
                    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    return;
                }
            }
            panic!("not within a second in any round");
        };
        tokio::select! {
            () = server.serve(Admin::new(Readiness::default(), Registry::default())) => unreachable!("it serves until it is dropped"),
            () = asking => {}
        }
    }
}
