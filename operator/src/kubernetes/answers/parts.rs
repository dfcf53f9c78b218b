//! One answer of the API server, read part by part.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Bytes;
use kube::client::Body;

/// The longest answer, and the longest event of a watch, in bytes. An object has 1.5 MiB at most where it is stored
/// (`--max-request-bytes` of etcd), and JSON writes some characters in six bytes, such as `<`. It can be longer than this,
/// too: what is empty and takes two bytes there has its name in JSON.
pub(crate) const LONGEST: usize = 10 << 20;

/// How long the next part of an answer may take.
const STALL: Duration = Duration::from_secs(30);

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

/// An answer that is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error("the answer to {0} is longer than {LONGEST} bytes")]
    TooLong(String),
    #[error("an event of {0} is longer than {LONGEST} bytes")]
    TooLongEvent(String),
    #[error("the answer to {0} has stopped for {STALL:?}")]
    Stalled(String),
}

/// The next part of an answer; none at its end.
pub(super) async fn next(body: &mut Body, about: &str) -> Result<Option<Bytes>, Error> {
    loop {
        let Ok(frame) = tokio::time::timeout(STALL, body.frame()).await else {
            return Err(Unread::Stalled(about.to_owned()).into());
        };
        let Some(frame) = frame else { return Ok(None) };
        // Trailers say nothing here.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
}
