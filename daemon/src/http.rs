//! The HTTP server for socket and probes of the keeper, and for the operator's probes: small answers, one per
//! connection, and limits for clients that are slow, greedy or hostile.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::unix::UCred;

use crate::accept::{self, Bounds, Listen, Stopping};
use crate::places::{Place, Places, Standing};
use crate::send_deadline::SendDeadline;

mod answer;

pub use answer::{Answer, Sentence, json, not_found, sentence, text, wrong_method, wrong_method_for};

/// Connections at once. Under a flood of 1,000 silent ones a second from the kubelet's own address, its probe has 256
/// ms for its request; under one from elsewhere it has no such limit. Each connection costs some 10 KiB.
const CONNECTIONS: usize = 256;

/// Longest head of a request, in bytes; the least that hyper accepts.
const HEAD_BYTES: usize = 8 * 1024;

/// Longest time until a request's head is complete.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time for an answer whose length is known: a client that does not read would keep it in memory for ever.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time for answers that are under way when the server ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time until a client that has its answer closes the connection.
const LINGER: Duration = Duration::from_secs(1);

/// The answers of a server.
pub trait Routes: Clone + Send + 'static {
    /// The answer to a request. A request over a Unix socket has the [`UCred`] of its peer among its extensions.
    fn answer(self, request: Request<Incoming>, stopping: Stopping) -> impl Future<Output = Answer> + Send;
}

/// Serves until `stop` completes; then waits a moment for the answers that are under way.
pub async fn serve<L, R: Routes>(listener: L, routes: R, stop: impl Future<Output = ()>)
where
    L: Listen<Stream: AsyncRead + AsyncWrite + Unpin>,
{
    let bounds = Bounds {
        places: Places::new(CONNECTIONS),
        drain: DRAIN_TIMEOUT,
        what: "a connection",
    };
    accept::serve(listener, bounds, stop, |stream, place, stopping| {
        let peer = L::peer(&stream);
        connection(stream, peer, place, routes.clone(), stopping)
    })
    .await;
}

pub(crate) async fn connection<R: Routes>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Option<UCred>,
    place: Place,
    routes: R,
    stopping: Stopping,
) {
    let standing = &place;
    let deadline = SendDeadline::new();
    let sending = &deadline;
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        standing.stand(Standing::Asking);
        let answer = routes.clone().answer(request, stopping.clone());
        async move {
            let answer = answer.await;
            // Others, such as events, go on for as long as their reader likes, and keep little in memory.
            if answer.body().size_hint().exact().is_some() {
                sending.begin(SEND_TIMEOUT);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        // One answer per connection: a client keeps no place that it does not use.
        .keep_alive(false)
        // Shell clients (`nc -N`, socat) shut down their side after the request. Without this, some of them would get
        // no answer. If a follower of events has gone away, the server notices it when it cannot write the next event,
        // or the comment that keeps the stream alive.
        .half_close(true);
    let served = async {
        match server.serve_connection(TokioIo::new(&mut stream), service).await {
            Ok(()) => {
                standing.stand(Standing::Idle);
                linger(&mut stream).await;
            }
            // Caused by the client: it went away, or it does not use HTTP.
            Err(error) => tracing::trace!(%error, "A connection ended early"),
        }
    };
    tokio::select! {
        () = served => {}
        () = place.is_taken() => tracing::trace!("A connection gave way to a newer one"),
        () = deadline.missed() => tracing::trace!("A client has not read its answer in time"),
    }
}

/// Waits until the client has read its answer and closed the connection. The end of this process may be the end of the
/// client as well: a user who asks a sidecar by `kubectl exec` for a handover is in the container that ends because of it.
async fn linger(stream: &mut (impl AsyncRead + Unpin)) {
    let closed = async {
        let mut rest = [0; 256];
        while matches!(stream.read(&mut rest).await, Ok(1..)) {}
    };
    // Most clients close at once. One that does not gets no more time.
    let _ = tokio::time::timeout(LINGER, closed).await;
}

#[cfg(test)]
mod tests;
