//! The key of a session, out of the client and into it.
//!
//! `zookeeper-client` keeps a session's password to itself, and makes a `SessionInfo` only of what a server has said. So we
//! are the server for one handshake (`ConnectRequest` and `ConnectResponse` of ZooKeeper's `zookeeper.jute`), over a
//! connection of this process to itself.
//!
//! Other processes of the machine can connect as well. The listener tells the password to the client alone that asks for
//! the session timeout which was drawn for this handshake, and one other attempt ends it.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use zookeeper_client as zk;

use super::executor::Executor;
use crate::clock::BootInstant;
use crate::ticket::{SESSION_PASSWORD_LEN, SessionKey};

/// How long one attempt of [`make`] may take: it stays on this machine.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long [`key`] may take. No other work waits for it, and a busy machine may leave us without a processor for seconds.
const PATIENCE_FOR_THE_KEY: Duration = Duration::from_secs(10);

/// Pause between two attempts: what fails at once, such as a lack of ports, may pass.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest `ConnectRequest`: that of a client with a password of 16 bytes has 45.
const LONGEST_REQUEST: usize = 256;

/// The answer to a ping: its length, and a `ReplyHeader` of xid -2 (`ClientCnxn.PING_XID`), zxid 0 and no error.
const PONG: [u8; 20] = [
    0, 0, 0, 16, 255, 255, 255, 254, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// What a client says first.
struct ConnectRequest {
    /// In milliseconds.
    timeout: i32,
    session: i64,
    password: Vec<u8>,
}

/// The key of a session that this client has.
///
/// # Errors
/// When this process cannot connect to itself, or the password has another length than ZooKeeper's.
pub(super) async fn key(session: zk::SessionInfo) -> io::Result<SessionKey> {
    let id = session.id().0;
    let (listener, address) = listen().await?;
    let executor = Executor::default();
    let connecting = executor.enter(connector().with_session(session).connect(&address));
    let request = async {
        let (mut stream, _) = listener.accept().await?;
        read(&mut stream).await
    };
    // Without an answer the client never ends its attempt.
    let request = within(PATIENCE_FOR_THE_KEY, async {
        tokio::select! {
            request = request => request,
            _ = connecting => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    })
    .await?;
    match <[u8; SESSION_PASSWORD_LEN]>::try_from(request.password) {
        Ok(password) if request.session == id => Ok(SessionKey { id, password }),
        _ => Err(invalid("the session has no password of 16 bytes")),
    }
}

/// The session for a client of this process, by its key. It is tried again for `patience`: another process of the machine
/// may connect in between, a port may be missing, or we may be without a processor for seconds.
///
/// # Errors
/// When this process cannot connect to itself for all that time.
pub(super) async fn make(key: &SessionKey, patience: Duration) -> io::Result<zk::SessionInfo> {
    let end = BootInstant::now() + patience;
    loop {
        let made = async {
            let (listener, address) = listen().await?;
            make_over(&listener, &address, key).await
        };
        let made = made.await;
        if made.is_ok() || BootInstant::now() >= end {
            return made;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn make_over(listener: &TcpListener, address: &str, key: &SessionKey) -> io::Result<zk::SessionInfo> {
    let drawn = fastrand::i32(1_000_000..i32::MAX);
    let timeout = Duration::from_millis(drawn.unsigned_abs().into());
    let executor = Executor::default();
    let connecting = async {
        let client = executor.enter(connector().with_session_timeout(timeout).connect(address));
        client.await.map_err(io::Error::other)
    };
    let serving = async {
        let (mut stream, _) = listener.accept().await?;
        let request = read(&mut stream).await?;
        if request.timeout != drawn {
            return Err(invalid("another process has connected"));
        }
        stream.write_all(&response(key)).await?;
        // The client sends a ping before it counts as connected.
        loop {
            frame(&mut stream).await?;
            stream.write_all(&PONG).await?;
        }
    };
    let client = within(PATIENCE, async {
        tokio::select! {
            client = connecting => client,
            error = serving => error,
        }
    })
    .await?;
    // Its task has never run, and is dropped with the executor.
    Ok(client.into_session())
}

async fn listen() -> io::Result<(TcpListener, String)> {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?.to_string();
    Ok((listener, address))
}

/// Its clients end without ending a session.
fn connector() -> zk::Connector {
    zk::Client::connector().with_fail_eagerly().with_detached()
}

async fn within<T>(patience: Duration, handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(patience, handshake).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Reads one frame: its length, and as many bytes.
async fn frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_i32().await?).unwrap_or(usize::MAX);
    if length > LONGEST_REQUEST {
        return Err(invalid("another process has connected"));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

/// Reads a request: version (4 bytes), zxid (8), timeout (4), session (8), password (4 and its length), and whether the
/// client would take a server that only reads (1).
async fn read(stream: &mut TcpStream) -> io::Result<ConnectRequest> {
    let frame = frame(stream).await?;
    let mut rest = frame.as_slice();
    let _version = rest.read_i32().await?;
    let _zxid = rest.read_i64().await?;
    let timeout = rest.read_i32().await?;
    let session = rest.read_i64().await?;
    let length = usize::try_from(rest.read_i32().await?).unwrap_or(0);
    let password = rest.get(..length).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec();
    Ok(ConnectRequest {
        timeout,
        session,
        password,
    })
}

/// A response: version (4 bytes), timeout (4), session (8), password (4 and its length), and whether the server only
/// reads (1).
fn response(key: &SessionKey) -> Vec<u8> {
    // Any positive time: the real server names its own.
    const TIMEOUT: i32 = 10_000;
    let mut body = Vec::with_capacity(64);
    body.extend(0_i32.to_be_bytes());
    body.extend(TIMEOUT.to_be_bytes());
    body.extend(key.id.to_be_bytes());
    body.extend((SESSION_PASSWORD_LEN as i32).to_be_bytes());
    body.extend(key.password);
    body.push(0);
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.append(&mut body);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SessionKey = SessionKey {
        id: 0x1000_0000_0000_0007,
        password: [7, 1, 2, 3, 4, 5, 6, 255, 8, 9, 10, 11, 12, 13, 14, 15],
    };

    #[tokio::test]
    async fn a_key_makes_a_session_of_which_the_same_key_comes_out_again() {
        for _ in 0..100 {
            let session = make(&KEY, PATIENCE).await.expect("a session");
            assert_eq!(session.id().0, KEY.id);
            assert!(key(session).await.is_ok_and(|key| key == KEY));
        }
    }

    #[tokio::test]
    async fn a_stranger_who_connects_first_hears_no_password() {
        let (listener, address) = listen().await.expect("a socket");
        let mut stranger = TcpStream::connect(&address).await.expect("connected");
        let mut body = 0_i32.to_be_bytes().to_vec();
        body.extend(0_i64.to_be_bytes());
        body.extend(30_000_i32.to_be_bytes());
        body.extend(0_i64.to_be_bytes());
        body.extend([0; 5]);
        stranger.write_i32(body.len() as i32).await.expect("written");
        stranger.write_all(&body).await.expect("written");
        assert!(make_over(&listener, &address, &KEY).await.is_err());
        let mut heard = Vec::new();
        let _ = stranger.read_to_end(&mut heard).await;
        assert!(heard.is_empty(), "{heard:?}");
    }

    #[tokio::test]
    async fn what_a_stranger_sends_is_bounded() {
        let (listener, address) = listen().await.expect("a socket");
        let mut stranger = TcpStream::connect(&address).await.expect("connected");
        stranger.write_i32(i32::MAX).await.expect("written");
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let error = read(&mut stream).await.err().expect("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
