//! HTTPS for the API server: one path for pods, one for workloads.
//!
//! Every pod reaches this port, so connections, bytes and times are bounded over all of them together, and
//! clients that send whole requests take precedence over clients that do not ([`lockkeeper_daemon::places`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use lockkeeper_daemon::accept::{self, Bounds, Stopping};
use lockkeeper_daemon::places::{Place, Places, Standing};
use lockkeeper_daemon::send_deadline::SendDeadline;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::sending::Sending;
use super::{Admission, weight};

/// Path of the review of pods.
pub(crate) const PODS: &str = "/pods";
/// Path of the review of workloads.
pub(crate) const WORKLOADS: &str = "/workloads";

/// Connections at once. An API server has one for each review under way, and two that rest (Go's
/// `MaxIdleConnsPerHost`); 50 pods at once are 50 connections.
const CONNECTIONS: usize = 256;

/// Longest review, in bytes: what an API server takes of a request (`MaxRequestBodyBytes` in
/// `k8s.io/apiserver/pkg/server/config.go`), since an object has at most half of that in etcd
/// (`--max-request-bytes`, 1.5 MiB), and a review of an update holds two.
pub(crate) const MAX_BODY: usize = 3 << 20;

/// What one review may need of memory, in bytes: more than 10,000 objects within objects, or some thousand volumes or
/// containers. A pod with 100 variables in each of 10 containers needs a fifth of it.
pub(crate) const MAX_WEIGHT: usize = 32 << 20;

/// What all reviews at once may need of memory, in bytes: three of the largest kind, or 300 of common pods.
const MEMORY: usize = 96 << 20;

/// How long the body of a request may take, and how long it may wait for memory. An API server waits for 30 s
/// for the whole answer at most.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a review may take when its body is there: no API server waits for more than 30 s. What it asks others is bounded,
/// by a second for each question and `--registry-timeout`.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// A request's head may be this long, in bytes.
const HEAD_BYTES: usize = 16 * 1024;

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

/// Answers on `listener` until `stop` is true and API servers have had time to learn it; then requests under way
/// are answered.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    admission: Arc<Admission>,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let bounds = Bounds {
        places: Places::with_memory(CONNECTIONS, MEMORY),
        drain: DRAIN,
        what: "a connection of the API server",
    };
    let end = async {
        is_true(&mut stop).await;
        tokio::time::sleep(LINGER).await;
    };
    let ended = accept::serve(listener, bounds, end, |stream, place, stopping| {
        connection(acceptor.clone(), stream, place, Arc::clone(&admission), stopping)
    });
    if !ended.await {
        tracing::warn!("Requests to the webhook did not end in time; going on without them");
    }
}

/// Also when its sender is gone.
async fn is_true(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|is_true| *is_true).await;
}

async fn connection(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    place: Place,
    admission: Arc<Admission>,
    stop: Stopping,
) {
    let place = Arc::new(place);
    tokio::select! {
        () = talk(acceptor, stream, Arc::clone(&place), admission, stop) => {}
        () = place.is_taken() => tracing::debug!("A connection to the webhook gave way to another one"),
    }
}

async fn talk(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    place: Arc<Place>,
    admission: Arc<Admission>,
    mut stop: Stopping,
) {
    // Small answers at once; they are the whole of what is sent.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "Failed to turn off Nagle's algorithm");
    }
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // Any client can make it happen, as often as it likes.
            tracing::debug!(%error, "Failed to speak TLS with a client of the webhook");
            return;
        }
        Err(_) => return,
    };
    let deadline = SendDeadline::new();
    let sending = deadline.clone();
    let service = service_fn(move |request| {
        let (admission, place, sending) = (Arc::clone(&admission), Arc::clone(&place), sending.clone());
        async move {
            let answer = handle(admission, &place, request).await;
            Ok::<_, Infallible>(answer.map(|body| Sending::begin(body, place, sending)))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = async {
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
    };
    tokio::select! {
        () = served => {}
        () = deadline.missed() => tracing::debug!("A client of the webhook has not read its answer in time"),
    }
}

async fn handle(admission: Arc<Admission>, place: &Place, request: Request<Incoming>) -> Response<Bytes> {
    let path = request.uri().path().to_owned();
    if ![PODS, WORKLOADS].contains(&path.as_str()) {
        let text = format!("there is no {path}: the paths are {PODS} and {WORKLOADS}\n");
        return plain(StatusCode::NOT_FOUND, text);
    }
    if request.method() != Method::POST {
        let text = "send a POST with an AdmissionReview\n".to_owned();
        return plain(StatusCode::METHOD_NOT_ALLOWED, text);
    }
    let body = match tokio::time::timeout(BODY_TIMEOUT, receive(place, request.into_body())).await {
        Ok(Ok(body)) => body,
        Ok(Err(refused)) => return refused,
        Err(_) => {
            let text =
                format!("the body did not come, or there was no memory for it, within {BODY_TIMEOUT:?}\n");
            return plain(StatusCode::SERVICE_UNAVAILABLE, text);
        }
    };
    let reviewed = async {
        if path == PODS {
            admission.pod(&body, place.source()).await
        } else {
            admission.workload(&body, place.source()).await
        }
    };
    let Ok(answer) = tokio::time::timeout(REVIEW_TIMEOUT, reviewed).await else {
        let text = format!("the review took longer than {REVIEW_TIMEOUT:?}, and was given up\n");
        return plain(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    match answer {
        Ok(json) => {
            let mut response = Response::new(Bytes::from(json));
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(problem) => plain(StatusCode::BAD_REQUEST, format!("{problem}\n")),
    }
}

/// Reads a body, and keeps memory for it and for what is made of it.
async fn receive(place: &Place, body: Incoming) -> Result<Bytes, Response<Bytes>> {
    let too_long = || {
        let text = format!("cannot read the body: it has more than {MAX_BODY} bytes\n");
        plain(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let length = body.size_hint().upper().unwrap_or(MAX_BODY as u64);
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_BODY);
    place.hold(length.ok_or_else(too_long)?).await;
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_long()),
        Err(error) => {
            let text = format!("cannot read the body: {error}\n");
            return Err(plain(StatusCode::BAD_REQUEST, text));
        }
    };
    let weight = weight::of(&body);
    if weight > MAX_WEIGHT {
        let text = format!(
            "the review has too many parts: it would take {weight} bytes of memory, and {MAX_WEIGHT} are allowed\n"
        );
        return Err(plain(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    place.stand(Standing::Asking);
    place.hold(weight).await;
    Ok(body)
}

fn plain(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    response
}
