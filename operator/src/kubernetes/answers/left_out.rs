//! Objects that are too long: they are skipped without being kept, and reported.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::time::Instant;

use super::parts::{Error, LONGEST, Unread, next};
use super::skim::{Path, Skim};

/// How much of an object that is too long is read to find its end, in bytes.
const FURTHEST: usize = 16 * LONGEST;

/// Time between two lines of the log about objects that were left out: their authors decide how often that is.
const QUIET: Duration = Duration::from_secs(10);

/// What is read of a page.
const OF_PAGE: &[Path] = &[
    &["kind"],
    &["apiVersion"],
    &["metadata", "resourceVersion"],
    &["metadata", "continue"],
    &["items", "", "metadata", "namespace"],
    &["items", "", "metadata", "name"],
];

/// What is read of an event.
const OF_EVENT: &[Path] = &[
    &["type"],
    &["object", "kind"],
    &["object", "apiVersion"],
    &["object", "metadata", "namespace"],
    &["object", "metadata", "name"],
    &["object", "metadata", "uid"],
    &["object", "metadata", "resourceVersion"],
];

#[derive(Clone)]
pub(crate) struct LeftOut {
    count: Counter,
    /// When the last line was written.
    said: Arc<Mutex<Option<Instant>>>,
}

/// A page of one object that is too long.
pub(crate) struct Page {
    length: usize,
    skim: Skim,
}

/// The line of a watch that is being read.
struct Line {
    length: usize,
    is_cut: bool,
    skim: Skim,
}

// === impl LeftOut ===

impl LeftOut {
    pub(crate) fn new(count: Counter) -> Self {
        Self {
            count,
            said: Arc::default(),
        }
    }

    fn tell(&self, about: &str, namespace: Option<&str>, name: &str) {
        self.count.inc();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= QUIET) {
            *said = Some(Instant::now());
            tracing::warn!(
                about,
                namespace,
                name,
                "Left out an object that is longer than {LONGEST} bytes"
            );
        }
    }
}

// === impl Page ===

impl Default for Page {
    fn default() -> Self {
        Self {
            length: 0,
            skim: Skim::new(OF_PAGE),
        }
    }
}

impl Page {
    /// Its next part.
    pub(crate) fn read(&mut self, data: &[u8]) {
        self.length += data.len();
        self.skim.read(data);
    }

    /// Reads the rest of it, and makes the same page without its object.
    ///
    /// # Errors
    /// When it does not end, or is no such page; and those of the connection.
    pub(crate) async fn end(
        mut self,
        mut body: Body,
        about: String,
        left_out: &LeftOut,
    ) -> Result<Vec<u8>, Error> {
        while let Some(data) = next(&mut body, &about).await? {
            self.read(&data);
            if self.length > FURTHEST {
                return Err(Unread::TooLong(about).into());
            }
        }
        let Some([Some(kind), Some(version), at, token, namespace, Some(name)]) = self.skim.found() else {
            return Err(Unread::TooLong(about).into());
        };
        left_out.tell(&about, namespace.as_deref(), name);
        let metadata = json!({ "resourceVersion": at, "continue": token });
        let page = json!({ "kind": kind, "apiVersion": version, "metadata": metadata, "items": [] });
        Ok(page.to_string().into_bytes())
    }
}

// === impl Line ===

impl Line {
    /// The part of these data that is passed on. A line that is too long is cut off, which the client takes for the
    /// end of the answer and skips (`Client::request_events`); then follow the deletion of the object and the
    /// position of the watch.
    fn pass(&mut self, data: Bytes, about: &str, left_out: Option<&LeftOut>) -> Result<Bytes, Error> {
        let mut passed = self.is_cut.then(Vec::new);
        let mut at = 0;
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            self.length += part.len();
            self.skim.read(part);
            // Text has to be whole characters.
            let is_whole = |byte: &u8| byte & 0xc0 != 0x80;
            if self.length > LONGEST
                && !self.is_cut
                && let Some(end) = part.iter().position(is_whole)
            {
                let passed = passed.get_or_insert_with(|| data[..at].to_vec());
                passed.extend_from_slice(&data[at..at + end]);
                passed.push(b'\n');
                self.is_cut = true;
            }
            if (self.is_cut && left_out.is_none()) || self.length > FURTHEST {
                return Err(Unread::TooLongEvent(about.to_owned()).into());
            }
            if let Some(passed) = passed.as_mut().filter(|_| !self.is_cut) {
                passed.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                if let (Some(passed), true, Some(left_out)) = (&mut passed, self.is_cut, left_out) {
                    passed.extend(self.instead(about, left_out)?);
                }
                self.length = 0;
                self.is_cut = false;
                self.skim.reset();
            }
            at += part.len();
        }
        Ok(passed.map_or(data, Bytes::from))
    }

    /// The event in the place of one that is too long.
    fn instead(&self, about: &str, left_out: &LeftOut) -> Result<Vec<u8>, Error> {
        let Some(
            [
                Some(what),
                Some(kind),
                Some(version),
                namespace,
                Some(name),
                uid,
                Some(at),
            ],
        ) = self.skim.found()
        else {
            return Err(Unread::TooLongEvent(about.to_owned()).into());
        };
        if !["ADDED", "MODIFIED", "DELETED"].contains(&what.as_str()) {
            return Err(Unread::TooLongEvent(about.to_owned()).into());
        }
        left_out.tell(about, namespace.as_deref(), name);
        let metadata = json!({ "namespace": namespace, "name": name, "uid": uid, "resourceVersion": at });
        let object = json!({ "kind": kind, "apiVersion": version, "metadata": metadata });
        let event = json!({ "type": "DELETED", "object": object });
        Ok(format!("{event}\n").into_bytes())
    }
}

/// The events of a watch, one in each line. With `left_out` those that are too long are left out; else they are the end.
pub(crate) fn events(body: Body, about: String, left_out: Option<LeftOut>) -> UnsyncBoxBody<Bytes, Error> {
    let mut line = Line {
        length: 0,
        is_cut: false,
        skim: Skim::new(OF_EVENT),
    };
    let frames = body.into_data_stream().map(move |data| {
        let data = line.pass(data?, &about, left_out.as_ref())?;
        Ok(Frame::data(data))
    });
    StreamBody::new(frames).boxed_unsync()
}
