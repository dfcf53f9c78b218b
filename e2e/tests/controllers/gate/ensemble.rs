//! The proxy to the ensemble: it forwards connections request by request (ZooKeeper's `jute` frames: a
//! length, then a number of the request, then its kind).

use std::io;
use std::sync::{Arc, Mutex};

use lockkeeper_product::beside::Environment;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::{Fate, State, admit};

/// Kinds of requests that write to one node (`ZooDefs.OpCode`).
const WRITES: [(i32, &str); 5] = [
    (1, "create"),
    (2, "delete"),
    (5, "setData"),
    (7, "setACL"),
    (15, "create"),
];

/// The number of the request whose answer gets lost.
type Lost = Arc<Mutex<Option<i32>>>;

pub(super) async fn serve(
    environment: &Environment,
    state: Arc<watch::Sender<State>>,
) -> (AbortHandle, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect = listener.local_addr().unwrap().to_string();
    let servers: Vec<_> = (0..environment.ensemble.len())
        .map(|server| environment.ensemble.address(server))
        .collect();
    let task = tokio::spawn(async move {
        // The connections end with this task.
        let mut connections = JoinSet::new();
        for server in servers.into_iter().cycle() {
            let (client, _) = listener.accept().await.unwrap();
            let state = Arc::clone(&state);
            connections.spawn(async move {
                // If the server is down, the client's connection closes.
                if let Ok(server) = TcpStream::connect(server).await {
                    let lost = Lost::default();
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    // If one direction ends, both end.
                    let _ = tokio::select! {
                        ended = ask(from_client, to_server, &state, &lost) => ended,
                        ended = answer(from_server, to_client, &lost) => ended,
                    };
                }
            });
        }
    });
    (task.abort_handle(), connect)
}

async fn ask(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &watch::Sender<State>,
    lost: &Lost,
) -> io::Result<()> {
    // The first one opens the session, and has no number.
    forward(&read(&mut from).await?, &mut to).await?;
    loop {
        let frame = read(&mut from).await?;
        if let Some((number, kind, path)) = write_of(&frame)
            && admit(state, path, kind).await == Fate::LosesItsAnswer
        {
            *lost.lock().unwrap() = Some(number);
        }
        forward(&frame, &mut to).await?;
    }
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, lost: &Lost) -> io::Result<()> {
    forward(&read(&mut from).await?, &mut to).await?;
    loop {
        let frame = read(&mut from).await?;
        let number = frame.first_chunk().map(|number| i32::from_be_bytes(*number));
        if number.is_some() && number == *lost.lock().unwrap() {
            return Ok(());
        }
        forward(&frame, &mut to).await?;
    }
}

/// Number, kind and path of a request that writes.
fn write_of(frame: &[u8]) -> Option<(i32, &'static str, &str)> {
    let number = |at: usize| Some(i32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?));
    let (_, kind) = WRITES.into_iter().find(|(kind, _)| number(4) == Some(*kind))?;
    let length = usize::try_from(number(8)?).ok()?;
    let path = std::str::from_utf8(frame.get(12..12 + length)?).ok()?;
    Some((number(0)?, kind, path))
}

async fn read(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let length = from.read_i32().await?;
    let mut frame = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    from.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn forward(frame: &[u8], to: &mut OwnedWriteHalf) -> io::Result<()> {
    let length = i32::try_from(frame.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_be_bytes(), frame].concat()).await
}
