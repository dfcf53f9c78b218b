//! Probes and metrics: `/livez`, `/readyz` and `/metrics` over HTTP, for kubelet and Prometheus.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use lockkeeper_sidecar::exit::Failure;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections served at once: kubelet and a few scrapers. More wait in the kernel's queue.
const CONNECTIONS: usize = 16;

/// A request's head must be there after this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a failed `accept`: the reason is mostly a lack of file descriptors, which lasts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";

/// OpenMetrics 1.0, section "Content Type".
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What has to be known before the operator is ready, each with a name for people.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    parts: Vec<(&'static str, watch::Receiver<bool>)>,
}

/// What is answered.
#[derive(Debug)]
pub struct Admin {
    readiness: Readiness,
    registry: Registry,
}

/// A bound port.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
}

// === impl Readiness ===

impl Readiness {
    /// One more part; ready while all parts are true.
    pub fn with(mut self, name: &'static str, part: watch::Receiver<bool>) -> Self {
        self.parts.push((name, part));
        self
    }

    /// What is still missing.
    fn missing(&self) -> Vec<&'static str> {
        let missing = self.parts.iter().filter(|(_, part)| !*part.borrow());
        missing.map(|(name, _)| *name).collect()
    }
}

// === impl Admin ===

impl Admin {
    /// Answers by these.
    pub fn new(readiness: Readiness, registry: Registry) -> Self {
        Self { readiness, registry }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "asked for with GET\n".into());
        }
        match request.uri().path() {
            // That this is answered at all is what it says.
            "/livez" => text(StatusCode::OK, PLAIN, "the operator runs\n".into()),
            "/readyz" => match self.readiness.missing().as_slice() {
                [] => text(StatusCode::OK, PLAIN, "ready\n".into()),
                missing => {
                    let missing = format!("not read yet: {}\n", missing.join(", "));
                    text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, missing)
                }
            },
            "/metrics" => {
                let mut page = String::new();
                match encode(&mut page, &self.registry) {
                    Ok(()) => text(StatusCode::OK, OPEN_METRICS, page),
                    Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, error.to_string()),
                }
            }
            _ => {
                let known = "there is /livez, /readyz and /metrics\n".to_owned();
                text(StatusCode::NOT_FOUND, PLAIN, known)
            }
        }
    }
}

fn text(status: StatusCode, kind: &'static str, page: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(page.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

// === impl AdminServer ===

impl AdminServer {
    /// Listens. To be called in a tokio runtime.
    ///
    /// # Errors
    /// When the address is in use, or is not one of this machine.
    pub async fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let sentence = format!("cannot listen on {address} for probes: {error}; choose another --admin-listen");
            Failure::unavailable(sentence)
        })?;
        Ok(Self { listener })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until it is dropped.
    pub async fn serve(self, admin: Admin) {
        let admin = Arc::new(admin);
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        // The semaphore is never closed.
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let admin = Arc::clone(&admin);
                    tokio::spawn(async move {
                        connection(stream, admin).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "Failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn connection(stream: TcpStream, admin: Arc<Admin>) {
    let service = service_fn(|request| {
        let answer = admin.answer(&request);
        async { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // One answer per connection: nobody keeps a slot that he does not use.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "A connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
        let server = AdminServer::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = server.local_address().unwrap();
        let asking = async {
            pods.send_replace(true);
            let answer = ask(address, "/readyz").await;
            assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("not read yet: locks"), "{answer}");
            locks.send_replace(true);
            assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));
            assert!(ask(address, "/livez").await.starts_with("HTTP/1.1 200"));
            assert!(ask(address, "/x").await.starts_with("HTTP/1.1 404"));
            metrics.wrote("status");
            let page = ask(address, "/metrics").await;
            assert!(page.contains("lockkeeper_operator_api_writes_total{kind=\"status\"} 1"), "{page}");
        };
        tokio::select! {
            () = server.serve(Admin::new(readiness, registry)) => unreachable!("it serves until it is dropped"),
            () = asking => {}
        }
    }
}
