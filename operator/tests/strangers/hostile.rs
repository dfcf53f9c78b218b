//! Servers that speak ZooKeeper's protocol as it suits them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_operator::zookeeper::children::CHANGES_OF_NAMESPACE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server does to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Announces a frame of 2 GiB behind the handshake, and sends it.
    Streams,
    /// Answers with a list that says it has 2^31 - 1 items, in a few bytes.
    Counts,
    /// Answers with a namespace that has a million locks.
    Crowds,
    /// Sends a byte of a frame now and then, for ever.
    Trickles,
    /// Reads, and says nothing.
    Silent,
    /// Is as any other, until something is to be made for a lock.
    Stalls,
    /// Tells of nodes of [`CHURNED`] that come and go, and then of one of [`HONEST`] that stays.
    Churns,
}

/// Namespace and name of a lock whose contenders come and go, and of one beside it.
pub const CHURNED: (&str, &str) = ("shop", "churned");
pub const HONEST: (&str, &str) = ("bank", "honest");

/// How many come and go: each is two changes, and more than [`CHANGES_OF_NAMESPACE`] are not followed.
pub const PAIRS_TOLD: u64 = CHANGES_OF_NAMESPACE as u64 / 2 + 1000;

/// Operations (`ZooDefs.OpCode`).
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const GET_ACL: i32 = 6;
const GET_CHILDREN: i32 = 8;
const GET_CHILDREN2: i32 = 12;
const CREATE2: i32 = 15;
const ADD_WATCH: i32 = 106;
/// Events (`Watcher.Event.EventType`).
const CREATED: i32 = 1;
const DELETED: i32 = 2;
/// Errors (`KeeperException.Code`).
const NO_NODE: i32 = -101;
const NO_AUTH: i32 = -102;

/// A server on a port of loopback. It ends with the runtime of the test.
pub struct Hostile {
    pub address: SocketAddr,
    connections: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

enum Answer {
    Body(Vec<u8>),
    Error(i32),
    Never,
}

impl Hostile {
    pub async fn start(kind: Kind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let [connections, sent, asked] = <[Arc<AtomicU64>; 3]>::default();
        tokio::spawn({
            let [connections, sent, asked] = [&connections, &sent, &asked].map(Arc::clone);
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::Relaxed);
                    let (sent, asked) = (Arc::clone(&sent), Arc::clone(&asked));
                    // An error is the end of the client.
                    tokio::spawn(async move { serve(stream, kind, &sent, &asked).await.ok() });
                }
            }
        });
        Self {
            address,
            connections,
            sent,
            asked,
        }
    }

    /// How often a client asked for one of the nodes that [`Kind::Churns`] tells of.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// How often a client came.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many bytes were taken from [`Kind::Streams`].
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

async fn serve(mut stream: TcpStream, kind: Kind, sent: &AtomicU64, asked: &AtomicU64) -> io::Result<()> {
    if kind == Kind::Silent {
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        return Ok(());
    }
    // Also the end of clients that send a four-letter word.
    if read_frame(&mut stream).await?.len() < 28 {
        return Ok(());
    }
    // Version, timeout, session, password, not read-only.
    let mut greeting = Vec::new();
    greeting.extend(0_i32.to_be_bytes());
    greeting.extend(15_000_i32.to_be_bytes());
    greeting.extend(7_i64.to_be_bytes());
    greeting.extend(buffer(&[1; 16]));
    greeting.push(0);
    stream.write_all(&buffer(&greeting)).await?;
    match kind {
        Kind::Streams => {
            stream.write_all(&i32::MAX.to_be_bytes()).await?;
            let zeros = [0; 64 << 10];
            for _ in 0..(2 << 30) / zeros.len() {
                stream.write_all(&zeros).await?;
                sent.fetch_add(zeros.len() as u64, Ordering::Relaxed);
            }
            std::future::pending().await
        }
        Kind::Trickles => {
            stream.write_all(&(1_i32 << 20).to_be_bytes()).await?;
            loop {
                stream.write_all(&[0]).await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        _ => loop {
            let request = read_frame(&mut stream).await?;
            let (xid, operation) = (int(&request, 0)?, int(&request, 4)?);
            let path = request.get(12..).unwrap_or_default();
            let path = String::from_utf8_lossy(path);
            if path.contains("/churned/") {
                asked.fetch_add(1, Ordering::Relaxed);
            }
            let (error, body) = match answer(kind, xid, operation, &path) {
                Answer::Never => continue,
                Answer::Error(error) => (error, Vec::new()),
                Answer::Body(body) => (0, body),
            };
            let mut reply = xid.to_be_bytes().to_vec();
            reply.extend(1_i64.to_be_bytes());
            reply.extend(error.to_be_bytes());
            reply.extend(body);
            stream.write_all(&buffer(&reply)).await?;
            if kind == Kind::Churns && operation == ADD_WATCH {
                stream.write_all(&news()).await?;
            }
        },
    }
}

/// What [`Kind::Churns`] tells.
fn news() -> Vec<u8> {
    let mut news = Vec::new();
    let mut tell = |event: i32, (namespace, lock): (&str, &str), name: &str| {
        let path = format!("/lockkeeper/locks/{namespace}/{lock}/{name}");
        let mut frame = (-1_i32).to_be_bytes().to_vec();
        frame.extend(1_i64.to_be_bytes());
        // No error; the event; connected.
        frame.extend([0, event, 3].into_iter().flat_map(i32::to_be_bytes));
        frame.extend(buffer(path.as_bytes()));
        news.extend(buffer(&frame));
    };
    for pair in 0..PAIRS_TOLD {
        let name = format!("_c_x-lock-{pair:010}");
        tell(CREATED, CHURNED, &name);
        tell(DELETED, CHURNED, &name);
    }
    tell(CREATED, HONEST, "_c_x-lock-0000000001");
    news
}

fn answer(kind: Kind, xid: i32, operation: i32, path: &str) -> Answer {
    // A ping, and the credentials.
    if matches!(xid, -2 | -4) {
        return Answer::Body(Vec::new());
    }
    let stat = [0; 68];
    match operation {
        EXISTS if path.contains("/honest/") => Answer::Body(stat.to_vec()),
        CREATE2 if kind == Kind::Churns => Answer::Body([&buffer(b"/made")[..], &stat].concat()),
        EXISTS => Answer::Error(NO_NODE),
        GET_ACL if kind == Kind::Counts => Answer::Body(i32::MAX.to_be_bytes().to_vec()),
        GET_ACL if kind == Kind::Churns => Answer::Error(NO_NODE),
        GET_ACL if kind == Kind::Stalls && path.contains("/shop/") => Answer::Never,
        // It belongs to another client, which has made it for all.
        GET_ACL => Answer::Error(NO_AUTH),
        GET_DATA => {
            let id = format!("00000000-0000-0000-0000-{:012x}", kind as u8 + 1);
            Answer::Body([&buffer(id.as_bytes())[..], &stat].concat())
        }
        GET_CHILDREN | GET_CHILDREN2 if kind == Kind::Crowds => {
            let mut names = 1_000_000_i32.to_be_bytes().to_vec();
            (0..1_000_000).for_each(|number| names.extend(buffer(format!("lock-{number:020}").as_bytes())));
            Answer::Body(names)
        }
        GET_CHILDREN | GET_CHILDREN2 => Answer::Error(NO_NODE),
        _ => Answer::Body(Vec::new()),
    }
}

async fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    if length > 1 << 20 {
        return Ok(Vec::new());
    }
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

fn int(frame: &[u8], at: usize) -> io::Result<i32> {
    let bytes = frame.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes
        .map(i32::from_be_bytes)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes(), bytes].concat()
}
