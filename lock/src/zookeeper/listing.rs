//! The names of a node's children, up to a limit of bytes.
//!
//! A name may have nearly 1 MB (`jute.maxbuffer`), a node may have as many children as the servers have memory for, and
//! no request returns the length of the list: the stat has only the number of children. `zookeeper-client` reads an
//! answer of any length into memory. So a list that other clients can make long is read over a connection of its own:
//! the length comes before the answer, and the connection is closed if it is too long.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::ServerAddress;
use super::onlooker::Onlooker;
use super::servers::ZooKeeper;
use crate::ensemble::{EnsembleError, EnsembleResult};

/// Longest answer to other requests, in bytes. They have some dozen bytes, and the path of a node.
const LONGEST_WORD: usize = 1 << 20;

/// The protocol of ZooKeeper (`ZooDefs.OpCode`, `ClientCnxn`): numbers of request types, and fixed numbers of requests
/// that the client does not count.
mod code {
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const SYNC: i32 = 9;
    pub(super) const AUTH: i32 = 100;
    pub(super) const CLOSE: i32 = -11;
    pub(super) const AUTH_XID: i32 = -4;
    pub(super) const NOTIFICATION_XID: i32 = -1;
    pub(super) const NO_NODE: i32 = -101;
    pub(super) const NO_AUTH: i32 = -102;
    pub(super) const AUTH_FAILED: i32 = -115;
}

/// An answer: its error code, and its body unless that is too long.
struct Answer {
    code: i32,
    body: Option<Vec<u8>>,
}

impl Onlooker {
    /// The names of the children of the node at `path`, asked over another connection to the same server, after
    /// everything that the ensemble has committed so far. `None` if the list is longer than `limit` bytes: a name
    /// counts its bytes and four.
    ///
    /// # Errors
    /// When the node is missing, or may not be listed; when the server cannot be reached, or does not answer within
    /// `patience`.
    pub async fn list_within(
        &self,
        path: &str,
        limit: usize,
        patience: Duration,
    ) -> EnsembleResult<Option<Vec<String>>> {
        let listed = self.zookeeper().list_within(self.server(), path, limit);
        let unreachable = |reason: String| EnsembleError::Unreachable {
            server: self.server().to_string(),
            reason,
        };
        match tokio::time::timeout(patience, listed).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(unreachable(format!("no answer within {patience:?}"))),
        }
    }
}

impl ZooKeeper {
    async fn list_within(
        &self,
        server: &ServerAddress,
        path: &str,
        limit: usize,
    ) -> io::Result<EnsembleResult<Option<Vec<String>>>> {
        // The name may lead elsewhere by now.
        let server = &match self.guarded(server).await {
            Ok(server) => server,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
        stream.set_nodelay(true)?;
        if !server.tls {
            return self.list_over(stream, path, limit).await;
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return self.list_over(tls.over(server, stream).await?, path, limit).await;
        }
        Err(io::Error::other("no TLS settings for this server"))
    }

    async fn list_over(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        path: &str,
        limit: usize,
    ) -> io::Result<EnsembleResult<Option<Vec<String>>>> {
        let timeout = i32::try_from(self.session_timeout.as_millis()).unwrap_or(i32::MAX);
        stream.write_all(&connect(timeout)).await?;
        let greeting = frame(&mut stream, LONGEST_WORD).await?.unwrap_or_default();
        // Version, timeout, ID, password; a timeout of 0 is a refusal.
        let granted = greeting.get(4..8).map(|bytes| bytes != [0; 4]);
        if granted != Some(true) {
            return Err(io::Error::other("the server gives no session"));
        }
        for identity in self.credentials.identities() {
            let request = request(code::AUTH_XID, code::AUTH, |body| {
                body.extend(0_i32.to_be_bytes());
                string(body, "digest");
                string(body, &identity);
            });
            stream.write_all(&request).await?;
            let answer = answer(&mut stream, code::AUTH_XID, LONGEST_WORD).await?;
            if answer.code != 0 {
                return Ok(Err(EnsembleError::AuthFailed));
            }
        }
        // The name may lead to another server, which may be behind the one that reported the children.
        stream
            .write_all(&request(1, code::SYNC, |body| string(body, path)))
            .await?;
        answer(&mut stream, 1, LONGEST_WORD).await?;
        let list = request(2, code::GET_CHILDREN, |body| {
            string(body, path);
            body.push(0);
        });
        stream.write_all(&list).await?;
        let Answer { code, body } = answer(&mut stream, 2, limit).await?;
        let failed = match code {
            0 => None,
            code::NO_NODE => Some(EnsembleError::NoNode),
            code::NO_AUTH => Some(EnsembleError::NoAuth),
            code::AUTH_FAILED => Some(EnsembleError::AuthFailed),
            other => Some(EnsembleError::Other(format!(
                "the server answers with error {other}"
            ))),
        };
        if body.is_some() {
            // Otherwise the session ends by its timeout.
            stream.write_all(&request(3, code::CLOSE, |_| ())).await?;
        }
        Ok(match (failed, body) {
            (Some(error), _) => Err(error),
            (None, None) => Ok(None),
            (None, Some(body)) => Ok(Some(strings(&body)?)),
        })
    }
}

/// The first request: a session of our own.
fn connect(timeout: i32) -> Vec<u8> {
    const PASSWORD: [u8; 16] = [0; 16];
    let mut body = Vec::new();
    body.extend(0_i32.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend(timeout.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend(length(PASSWORD.len()));
    body.extend(PASSWORD);
    // Refuse a read-only server.
    body.push(0);
    framed(&body)
}

fn request(xid: i32, code: i32, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(xid.to_be_bytes());
    body.extend(code.to_be_bytes());
    fill(&mut body);
    framed(&body)
}

fn framed(body: &[u8]) -> Vec<u8> {
    [&length(body.len()), body].concat()
}

fn string(to: &mut Vec<u8>, text: &str) {
    to.extend(length(text.len()));
    to.extend(text.as_bytes());
}

/// Our requests have some hundred bytes.
fn length(length: usize) -> [u8; 4] {
    i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes()
}

/// The answer to the request with this number.
async fn answer(stream: &mut (impl AsyncRead + Unpin), xid: i32, limit: usize) -> io::Result<Answer> {
    /// Number of the request, of the transaction, and the error.
    const HEAD: usize = 4 + 8 + 4;
    loop {
        let Some(mut frame) = frame(stream, HEAD + limit).await? else {
            return Ok(Answer { code: 0, body: None });
        };
        let (Some(found), Some(code)) = (number(&frame), frame.get(12..).and_then(number)) else {
            return Err(malformed());
        };
        match found {
            code::NOTIFICATION_XID => {}
            found if found == xid => {
                let body = Some(frame.split_off(HEAD));
                return Ok(Answer { code, body });
            }
            _ => return Err(malformed()),
        }
    }
}

/// A frame, unless it is longer than `limit` bytes; then only its length is read.
async fn frame(stream: &mut (impl AsyncRead + Unpin), limit: usize) -> io::Result<Option<Vec<u8>>> {
    let length = usize::try_from(stream.read_i32().await?).map_err(|_| malformed())?;
    if length > limit {
        return Ok(None);
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(Some(frame))
}

fn strings(body: &[u8]) -> io::Result<Vec<String>> {
    let (mut rest, mut strings) = (body, Vec::new());
    let count = take_length(&mut rest)?;
    for _ in 0..count {
        let length = take_length(&mut rest)?;
        let (text, behind) = rest.split_at_checked(length).ok_or_else(malformed)?;
        let text = std::str::from_utf8(text).map_err(|_| malformed())?;
        strings.push(text.to_owned());
        rest = behind;
    }
    Ok(strings)
}

fn take_length(rest: &mut &[u8]) -> io::Result<usize> {
    let found = number(rest).ok_or_else(malformed)?;
    *rest = &rest[4..];
    // A missing list has length -1.
    Ok(usize::try_from(found).unwrap_or(0))
}

fn number(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the server does not speak ZooKeeper's protocol",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zookeeper::AddressGuard;

    #[tokio::test]
    async fn an_answer_beyond_the_bound_is_not_read_and_one_within_it_is() {
        let mut answer = framed(&[&2_i32.to_be_bytes()[..], &[0; 12], b"hello"].concat());
        answer.extend(framed(&[0; 8]));
        let read = async |limit| {
            let mut stream = answer.as_slice();
            let found = super::answer(&mut stream, 2, limit).await.unwrap();
            (found.body, stream.len())
        };
        assert_eq!(read(5).await, (Some(b"hello".to_vec()), 12));
        assert_eq!(read(4).await, (None, answer.len() - 4), "only its length is read");
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_refused_address_by_now_is_not_connected_to() {
        // A connection to this port would fail in another way.
        let connect = "localhost:1".parse().unwrap();
        let zookeeper = ZooKeeper::new(connect, Duration::from_secs(4));
        let zookeeper = zookeeper.with_guard(AddressGuard::new(|_, _| Some("a loopback address".to_owned())));
        let server = &zookeeper.connect.servers()[0];
        let refusal = zookeeper
            .list_within(server, "/", 100)
            .await
            .unwrap()
            .unwrap_err();
        assert!(refusal.to_string().ends_with(", a loopback address"), "{refusal}");
    }

    #[test]
    fn a_list_that_breaks_off_is_refused() {
        let mut list = Vec::new();
        list.extend(length(2));
        string(&mut list, "a");
        assert!(strings(&list).is_err());
        string(&mut list, "b");
        assert_eq!(strings(&list).unwrap(), ["a", "b"]);
        assert_eq!(strings(&(-1_i32).to_be_bytes()).unwrap(), Vec::<String>::new());
    }
}
