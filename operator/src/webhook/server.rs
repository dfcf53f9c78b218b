//! HTTPS for the API server: one path for pods, one for workloads.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Admission;

/// Path of the review of pods.
pub const PODS: &str = "/pods";
/// Path of the review of workloads.
pub const WORKLOADS: &str = "/workloads";

/// Largest review: an object has at most 1.5 MiB in etcd, and a review of an update holds two of them.
const MAX_BODY: usize = 8 << 20;

/// For the handshake. The API server itself waits 10 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// For the next request. API servers close what they have not used for 90 s (`SetOldTransportDefaults` in
/// `k8s.io/apimachinery/pkg/util/net`). If we were first, a review could be on its way, and they do not send
/// it again: its pod would be refused.
const IDLE: Duration = Duration::from_secs(120);

/// At the end, until API servers have learnt that this replica is no endpoint of the Service any more:
/// they learn it by watches, some moments after the pod was told to stop.
const LINGER: Duration = Duration::from_secs(5);

/// How long requests under way may take at the end: the longest timeout of a webhook.
const DRAIN: Duration = Duration::from_secs(30);

/// After an error of the operating system, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers on `listener` until `stop` is true and everybody may have heard of it; then requests under way
/// are answered.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    admission: Arc<Admission>,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = JoinSet::new();
    let (closing, closes) = watch::channel(false);
    let mut end = std::pin::pin!(async {
        is_true(&mut stop).await;
        tokio::time::sleep(LINGER).await;
    });
    loop {
        tokio::select! {
            () = &mut end => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let admission = Arc::clone(&admission);
                    connections.spawn(connection(acceptor.clone(), stream, admission, closes.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "Failed to accept a connection of the API server");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    closing.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, all).await.is_err() {
        tracing::warn!("Requests to the webhook did not end in time; going on without them");
    }
}

/// Also when nobody can make it true any more.
async fn is_true(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|is_true| *is_true).await;
}

async fn connection(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    admission: Arc<Admission>,
    mut stop: watch::Receiver<bool>,
) {
    // Small answers at once; they are the whole of what is sent.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "Failed to turn off Nagle's algorithm");
    }
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::warn!(%error, "Failed to speak TLS with a client of the webhook");
            return;
        }
        Err(_) => return,
    };
    let service = service_fn(|request| handle(Arc::clone(&admission), request));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = is_true(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "A connection to the webhook ended early");
    }
}

async fn handle(
    admission: Arc<Admission>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    if ![PODS, WORKLOADS].contains(&path.as_str()) {
        let text = format!("there is no {path}: the paths are {PODS} and {WORKLOADS}\n");
        return Ok(plain(StatusCode::NOT_FOUND, text));
    }
    if request.method() != Method::POST {
        return Ok(plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "send a POST with an AdmissionReview\n".to_owned(),
        ));
    }
    let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return Ok(plain(
                StatusCode::BAD_REQUEST,
                format!("cannot read the body: {error}\n"),
            ));
        }
    };
    let answer = if path == PODS {
        admission.pod(&body).await
    } else {
        admission.workload(&body).await
    };
    Ok(match answer {
        Ok(json) => {
            let mut response = Response::new(Full::from(json));
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(problem) => plain(StatusCode::BAD_REQUEST, format!("{problem}\n")),
    })
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
