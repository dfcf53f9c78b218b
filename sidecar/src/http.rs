//! The HTTP server below socket and probes: small answers, one per connection, and bounds for
//! clients that are slow, greedy or hostile.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// Connections served at once; more wait in the kernel's queue.
pub(crate) const CONNECTIONS: usize = 64;

/// A request's head may be this long, in bytes; the least that hyper takes.
const HEAD_BYTES: usize = 8 * 1024;

/// A request's head must be there after this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers that are under way at the end may take this long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after a failed `accept`: the reason is mostly a lack of file descriptors, which lasts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An answer.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Becomes true when the server is to end; endless answers have to watch it.
pub(crate) type Stopping = watch::Receiver<bool>;

/// What is answered to whom.
pub(crate) trait Routes: Clone + Send + 'static {
    /// The answer to a request.
    fn answer(self, request: Request<Incoming>, stopping: Stopping) -> impl Future<Output = Answer> + Send;
}

/// Where connections come from.
pub(crate) enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// TCP.
    Tcp(TcpListener),
}

/// Serves until `stop` completes; then waits a moment for the answers that are under way.
pub(crate) async fn serve<R: Routes>(listener: Listener, routes: R, stop: impl Future<Output = ()>) {
    let (stopping, watch_stopping) = watch::channel(false);
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    tokio::select! {
        biased;
        () = stop => {}
        () = accept(&listener, &routes, &slots, &watch_stopping, &mut connections) => {}
    }
    drop(listener);
    stopping.send_replace(true);
    // Whoever is still there after the timeout is cut off when the set is dropped.
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

async fn accept<R: Routes>(
    listener: &Listener,
    routes: &R,
    slots: &Arc<Semaphore>,
    stopping: &Stopping,
    connections: &mut JoinSet<()>,
) {
    // The semaphore is never closed, so this ends with its future only.
    while let Ok(slot) = Arc::clone(slots).acquire_owned().await {
        while connections.try_join_next().is_some() {}
        let (routes, stopping) = (routes.clone(), stopping.clone());
        let accepted = match listener {
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                connections.spawn(connection(stream, slot, routes, stopping));
            }),
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                connections.spawn(connection(stream, slot, routes, stopping));
            }),
        };
        if let Err(error) = accepted {
            refused(&error).await;
        }
    }
}

async fn refused(error: &io::Error) {
    tracing::warn!(%error, "Failed to accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

async fn connection<R: Routes>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    slot: OwnedSemaphorePermit,
    routes: R,
    stopping: Stopping,
) {
    let service = service_fn(move |request| {
        let answer = routes.clone().answer(request, stopping.clone());
        async { Ok::<_, Infallible>(answer.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        // One answer per connection: nobody keeps a slot that he does not use.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        // A client's affair: it went away, or it does not speak HTTP.
        tracing::debug!(%error, "A connection ended early");
    }
    drop(slot);
}

/// An answer of text.
pub(crate) fn text(status: StatusCode, content_type: &'static str, content: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(content.into()).boxed_unsync());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// An answer of JSON.
pub(crate) fn json(status: StatusCode, content: &impl Serialize) -> Answer {
    match serde_json::to_vec(content) {
        Ok(content) => text(status, "application/json", content),
        Err(error) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            error.to_string(),
        ),
    }
}

/// An answer of one sentence about what is wrong.
pub(crate) fn sentence(status: StatusCode, error: impl Into<String>) -> Answer {
    json(status, &Sentence { error: error.into() })
}

/// The path exists and the method does not.
pub(crate) fn wrong_method(request: &Request<Incoming>, allowed: &'static str) -> Answer {
    let mut answer = sentence(
        StatusCode::METHOD_NOT_ALLOWED,
        format!(
            "{} is asked for with {allowed}, not with {}",
            request.uri().path(),
            request.method()
        ),
    );
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The path does not exist.
pub(crate) fn not_found(request: &Request<Incoming>, known: &str) -> Answer {
    sentence(
        StatusCode::NOT_FOUND,
        format!("there is no {} here; there is {known}", request.uri().path()),
    )
}

/// The body of [`sentence`].
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sentence {
    /// What is wrong.
    pub(crate) error: String,
}
