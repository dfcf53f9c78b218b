//! The loop that accepts connections: each gets a place, and has to end when the server ends.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::places::{Place, Places, Source};

/// Connections that the kernel keeps for us while we do something else: four seconds of a flood of 1,000 silent
/// connections a second. The kernel's own limit is `net.core.somaxconn`, 4096 since Linux 5.4 (listen(2)).
const BACKLOG: u32 = 4096;

/// Pause after a failed `accept`: most failures are a lack of file descriptors, which lasts.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Becomes true when the server has to end. Endless answers have to watch it.
pub type Stopping = watch::Receiver<bool>;

/// An address to listen on, as the value of an option.
///
/// # Errors
/// In one sentence, with the right form.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address to listen on is IP:PORT, such as 127.0.0.1:9808, or [::]:9808 for all addresses"
            .to_owned()
    })
}

/// A source of connections.
pub trait Listen {
    type Stream: Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Source)>> + Send;

    /// The process at the other end, if the kernel knows it.
    fn peer(stream: &Self::Stream) -> Option<UCred>;
}

#[derive(Debug)]
pub struct Bounds {
    pub places: Places,
    /// How long connections may take to end when the server ends.
    pub drain: Duration,
    /// The text after "Failed to accept" in the log: `a connection`.
    pub what: &'static str,
}

/// Gives every connection a place, and runs `connection` for it, until `stop` completes. Then waits for the open
/// connections, and returns whether all of them ended in time; the others are cut off.
pub async fn serve<L: Listen, C: Future<Output = ()> + Send + 'static>(
    listener: L,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
    connection: impl Fn(L::Stream, Place, Stopping) -> C,
) -> bool {
    let Bounds { places, drain, what } = bounds;
    let (stopping, watch_stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            (stream, source) = accept(&listener, what) => {
                let place = places.take(source);
                connections.spawn(connection(stream, place, watch_stopping.clone()));
                // A new connection reads what it was sent before further ones arrive that might take its place.
                tokio::task::yield_now().await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    // Dropping the set cuts off connections that are still open after the timeout.
    let all = async { while connections.join_next().await.is_some() {} };
    tokio::time::timeout(drain, all).await.is_ok()
}

async fn accept<L: Listen>(listener: &L, what: &str) -> (L::Stream, Source) {
    loop {
        match listener.next().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "Failed to accept {what}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Listens on a TCP port. If IPv6 is switched off, `[::]` means `0.0.0.0`: both stand for all addresses. Call it in a
/// tokio runtime.
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
    // So that a restarted program gets its port back.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

// === impl Listen ===

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Source)> {
        let (stream, peer) = self.accept().await?;
        Ok((stream, Source::of(peer.ip())))
    }

    fn peer(_: &TcpStream) -> Option<UCred> {
        None
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Source)> {
        let (stream, _) = self.accept().await?;
        Ok((stream, Source::LOCAL))
    }

    fn peer(stream: &UnixStream) -> Option<UCred> {
        stream.peer_cred().ok()
    }
}
