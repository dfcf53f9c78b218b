//! One request to the keeper, and its answer.
//!
//! HTTP/1.0 on purpose: the answer then ends where the connection ends, without chunks, and needs
//! no HTTP library on this side.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lockkeeper_daemon::exit::{Exit, Failure};
use lockkeeper_daemon::http::Sentence;

use crate::peer::Users;
use crate::probes::Kind;

/// An answer may be this long, in bytes: whatever is longer does not come from a keeper.
pub(crate) const ANSWER_BYTES: u64 = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Status,
    Events,
    Release,
    AbandonSurvivors,
    Inside,
    Terminating,
    Probe(Kind),
    Started(u64),
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub(crate) struct Reply<S> {
    /// Status code of HTTP.
    pub(crate) status: u16,
    /// What follows the head.
    pub(crate) stream: BufReader<S>,
}

/// Connects to the process that serves the socket.
///
/// # Errors
/// One sentence with the path of the socket.
pub(super) fn connect(socket: &Path) -> Result<UnixStream, String> {
    UnixStream::connect(socket).map_err(|error| format!("no keeper answers on {}: {error}", socket.display()))
}

/// Connects to a keeper of this user or of root. Every user can take a path below `/tmp` once its keeper has ended.
///
/// # Errors
/// As [`connect`], and when a process of another user serves it.
pub(super) fn connect_to_own(socket: &Path) -> Result<UnixStream, String> {
    let stream = connect(socket)?;
    let shown = socket.display();
    let server = rustix::net::sockopt::socket_peercred(&stream)
        .map_err(|error| format!("cannot find out which user serves {shown}: {error}"))?;
    let server = server.uid.as_raw();
    if !Users::own().allow(server) {
        return Err(format!(
            "user {server} serves {shown}, and only a keeper of this user or of root is trusted"
        ));
    }
    Ok(stream)
}

/// Sends a request and reads the head of the answer; waits at most `timeout` for each read.
///
/// # Errors
/// One sentence with the path of the socket.
pub(super) fn send(
    stream: UnixStream,
    socket: &Path,
    call: Call,
    timeout: Option<Duration>,
) -> Result<Reply<UnixStream>, String> {
    let shown = socket.display();
    let broken = |error| format!("the keeper on {shown} does not answer: {error}");
    stream.set_read_timeout(timeout).map_err(broken)?;
    stream.set_write_timeout(timeout).map_err(broken)?;
    (&stream).write_all(call.head().as_bytes()).map_err(broken)?;
    let reply = read_head(BufReader::new(stream)).map_err(broken)?;
    reply.ok_or_else(|| format!("what answers on {shown} does not speak HTTP: is it a keeper?"))
}

/// Reads the head of an answer; `None` when it is none of HTTP.
pub(crate) fn read_head<S: Read>(mut stream: BufReader<S>) -> io::Result<Option<Reply<S>>> {
    let mut status = None;
    // hyper writes a head of less than 200 bytes.
    for _ in 0..32 {
        let mut line = String::new();
        stream.by_ref().take(ANSWER_BYTES).read_line(&mut line)?;
        if status.is_none() {
            status = line
                .strip_prefix("HTTP/1.")
                .and_then(|rest| rest.split(' ').nth(1))
                .and_then(|code| code.parse().ok());
        }
        if line.trim_end().is_empty() {
            break;
        }
    }
    Ok(status.map(|status| Reply { status, stream }))
}

// === impl Call ===

impl Call {
    fn head(self) -> String {
        let line = match self {
            Self::Status => "GET /v1/lock".to_owned(),
            Self::Events => "GET /v1/lock/events".to_owned(),
            Self::Release => "POST /v1/lock/release".to_owned(),
            Self::AbandonSurvivors => "POST /v1/lock/abandon-survivors".to_owned(),
            Self::Inside => "GET /v1/lock/inside".to_owned(),
            Self::Terminating => "POST /v1/terminating".to_owned(),
            Self::Probe(kind) => format!("GET /v1/app/{}", kind.name()),
            Self::Started(start) => format!("POST /v1/app/started/{start}"),
        };
        format!("{line} HTTP/1.0\r\n\r\n")
    }
}

// === impl Reply ===

impl<S: Read> Reply<S> {
    /// The whole body.
    ///
    /// # Errors
    /// When it does not arrive.
    pub(crate) fn body(self, socket: &Path) -> Result<String, String> {
        let mut body = String::new();
        self.stream
            .take(ANSWER_BYTES)
            .read_to_string(&mut body)
            .map_err(|error| format!("the keeper on {} does not answer: {error}", socket.display()))?;
        Ok(body)
    }

    /// What the keeper says is wrong. It refuses what the user may not do, and what the state of its lock forbids.
    pub(crate) fn into_failure(self, socket: &Path) -> Failure {
        let status = self.status;
        let sentence = self
            .body(socket)
            .ok()
            .and_then(|body| serde_json::from_str::<Sentence>(&body).ok())
            .map_or_else(
                || {
                    format!(
                        "what answers on {} does not speak as a keeper (status {status})",
                        socket.display()
                    )
                },
                |sentence| sentence.error,
            );
        let exit = match status {
            403 | 409 => Exit::Refused,
            _ => Exit::Unavailable,
        };
        Failure::new(exit, sentence)
    }
}
