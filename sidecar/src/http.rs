//! The HTTP server below socket and probes, the operator's too: small answers, one per connection, and
//! bounds for clients that are slow, greedy or hostile.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub mod places;

use places::{Place, Places, Source, Standing};

/// Connections at once. Under a flood of 1,000 silent ones a second from the kubelet's own address, its
/// probe has 256 ms to ask; from elsewhere, all the time that it wants. Each costs some 10 KiB.
const CONNECTIONS: usize = 256;

/// Connections that the kernel keeps for us while we do something else: those of four seconds of such a
/// flood. The kernel's own limit is `net.core.somaxconn`, 4096 since Linux 5.4 (listen(2)).
const BACKLOG: u32 = 4096;

/// A request's head may be this long, in bytes; the least that hyper takes.
const HEAD_BYTES: usize = 8 * 1024;

/// A request's head must be there after this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers that are under way at the end may take this long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after a failed `accept`: the reason is mostly a lack of file descriptors, which lasts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An answer.
pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Becomes true when the server is to end; endless answers have to watch it.
pub type Stopping = watch::Receiver<bool>;

/// What is answered to whom.
pub trait Routes: Clone + Send + 'static {
    /// The answer to a request. One over a Unix socket has the [`UCred`] of its peer among its extensions.
    fn answer(self, request: Request<Incoming>, stopping: Stopping) -> impl Future<Output = Answer> + Send;
}

/// Where connections come from.
pub enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// TCP.
    Tcp(TcpListener),
}

/// Serves until `stop` completes; then waits a moment for the answers that are under way.
pub async fn serve<R: Routes>(listener: Listener, routes: R, stop: impl Future<Output = ()>) {
    let (stopping, watch_stopping) = watch::channel(false);
    let places = Places::new(CONNECTIONS);
    let mut connections = JoinSet::new();
    tokio::select! {
        biased;
        () = stop => {}
        () = accept(&listener, &routes, &places, &watch_stopping, &mut connections) => {}
    }
    drop(listener);
    stopping.send_replace(true);
    // Whoever is still there after the timeout is cut off when the set is dropped.
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

/// Never ends by itself.
async fn accept<R: Routes>(
    listener: &Listener,
    routes: &R,
    places: &Places,
    stopping: &Stopping,
    connections: &mut JoinSet<()>,
) {
    loop {
        while connections.try_join_next().is_some() {}
        let (routes, stopping) = (routes.clone(), stopping.clone());
        let accepted = match listener {
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                let place = places.take(Source::LOCAL);
                let peer = stream.peer_cred().ok();
                connections.spawn(connection(stream, peer, place, routes, stopping));
            }),
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, peer)| {
                let place = places.take(Source::of(peer.ip()));
                connections.spawn(connection(stream, None, place, routes, stopping));
            }),
        };
        if let Err(error) = accepted {
            refused(&error).await;
        }
        // Who came reads what was sent before others come who might take its place.
        tokio::task::yield_now().await;
    }
}

async fn refused(error: &io::Error) {
    tracing::warn!(%error, "Failed to accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

pub(crate) async fn connection<R: Routes>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Option<UCred>,
    place: Place,
    routes: R,
    stopping: Stopping,
) {
    let standing = &place;
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        standing.stand(Standing::Asking);
        let answer = routes.clone().answer(request, stopping.clone());
        async { Ok::<_, Infallible>(answer.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        // One answer per connection: nobody keeps a place that he does not use.
        .keep_alive(false)
        // Shell clients (`nc -N`, socat) shut their side down once they have asked; without this,
        // some of them would get no answer. A follower of events that has gone away is noticed
        // when the next event, or the comment that keeps the stream alive, cannot be written.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = served => if let Err(error) = served {
            // A client's affair: it went away, or it does not speak HTTP.
            tracing::trace!(%error, "A connection ended early");
        },
        () = place.is_taken() => tracing::trace!("A connection gave way to a newer one"),
    }
}

/// Listens on a TCP port. Where IPv6 is switched off, `[::]` is understood as `0.0.0.0`: both mean all
/// addresses. To be called in a tokio runtime.
///
/// # Errors
/// When the address is in use, or is not one of this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    listen_exactly(address).or_else(|error| {
        let no_ipv6 = matches!(
            rustix::io::Errno::from_io_error(&error),
            Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL)
        );
        if no_ipv6 && address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) {
            return listen_exactly(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())));
        }
        Err(error)
    })
}

fn listen_exactly(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() {
        TcpSocket::new_v6()
    } else {
        TcpSocket::new_v4()
    }?;
    // A restarted program gets its port back.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// An answer of text.
pub fn text(status: StatusCode, content_type: &'static str, content: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(content.into()).boxed_unsync());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// An answer of JSON.
pub fn json(status: StatusCode, content: &impl Serialize) -> Answer {
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
pub fn sentence(status: StatusCode, error: impl Into<String>) -> Answer {
    json(status, &Sentence { error: error.into() })
}

/// The path exists and the method does not.
pub fn wrong_method(request: &Request<Incoming>, allowed: &'static str) -> Answer {
    wrong_method_for(request.uri().path(), request, allowed)
}

/// The same, where the path is not to be repeated.
pub fn wrong_method_for(what: &str, request: &Request<Incoming>, allowed: &'static str) -> Answer {
    let mut answer = sentence(
        StatusCode::METHOD_NOT_ALLOWED,
        format!(
            "{what} is asked for with {allowed}, not with {}",
            request.method()
        ),
    );
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The path does not exist.
pub fn not_found(request: &Request<Incoming>, known: &str) -> Answer {
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
