//! How much of the API server's answers is read at once. Tenants decide what stands in objects and how many there are,
//! so no answer is read beyond a bound, and few that are long are read at the same time. A layer below the client sees to
//! it: whoever asks need not think of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

/// The longest answer, and the longest event of a watch, in bytes. An object has 1.5 MiB at most (`--max-request-bytes`
/// of etcd), and JSON writes some characters in six bytes, such as `<`.
pub const LONGEST: usize = 10 << 20;

/// What is read of an answer before it is a long one, in bytes: all that is said of most objects.
const SHORT: usize = 64 << 10;

/// Long answers about namespaces that are read at once; beside one about all namespaces together.
const PLACES: usize = 2;

/// How long the next part of an answer may take.
const STALL: Duration = Duration::from_secs(30);

/// By how much a page is made smaller that was too long.
const SMALLER: u32 = 8;

/// Collections whose pages are smaller than they are asked for; what is known beyond that is forgotten.
const REMEMBERED: usize = 256;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, Error>>;

/// A client that reads no more than it has memory for.
///
/// A page of a list that is too long is asked for again with fewer objects, down to one. Lists without a limit are refused
/// when they are too long, as objects are.
pub fn bounded(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let shared = Arc::new(Shared {
        places: Arc::new(Semaphore::new(PLACES)),
        turns: Mutex::default(),
        pages: Mutex::default(),
    });
    Client::new(Bounded { client, shared }, namespace)
}

/// An answer that is not read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("the answer to {0} is longer than {LONGEST} bytes")]
    TooLong(String),
    #[error("an event of {0} is longer than {LONGEST} bytes")]
    TooLongEvent(String),
    #[error("the answer to {0} has stopped for {STALL:?}")]
    Stalled(String),
}

#[derive(Clone)]
struct Bounded {
    client: Client,
    shared: Arc<Shared>,
}

struct Shared {
    places: Arc<Semaphore>,
    /// By namespace; empty for all namespaces together. One long answer at a time is read of each.
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Objects in one page of a collection whose pages were too long, by its path.
    pages: Mutex<HashMap<String, u32>>,
}

/// The right to keep a long answer in memory, until it is dropped.
struct Place(#[allow(dead_code, reason = "held")] [Option<OwnedSemaphorePermit>; 2]);

/// An answer with its place.
struct Held {
    text: Vec<u8>,
    _place: Option<Place>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

// === impl Bounded ===

impl Service<Request<Body>> for Bounded {
    type Response = Answer;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Answer, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.answer(request).await })
    }
}

impl Bounded {
    async fn answer(self, request: Request<Body>) -> Result<Answer, Error> {
        let about = format!("{} {}", request.method(), request.uri());
        let is_read = request.method() == Method::GET;
        if is_read && parameter(request.uri(), "watch") == Some("true") {
            let response = self.client.send(request).await?;
            return Ok(response.map(|body| events(body, about)));
        }
        let namespace = namespace(request.uri()).to_owned();
        let limit = parameter(request.uri(), "limit").and_then(|limit| limit.parse::<u32>().ok());
        let Some(limit) = limit.filter(|_| is_read) else {
            let response = self.client.send(request).await?;
            return self.shared.read(response, &namespace, about).await;
        };
        let (parts, _) = request.into_parts();
        let path = parts.uri.path().to_owned();
        loop {
            let page = self
                .shared
                .pages()
                .get(&path)
                .map_or(limit, |page| limit.min(*page));
            let mut asked = Request::from_parts(parts.clone(), Body::empty());
            *asked.uri_mut() = with_limit(&parts.uri, page)?;
            let about = format!("{} {}", asked.method(), asked.uri());
            let response = self.client.send(asked).await?;
            match self.shared.read(response, &namespace, about).await {
                Err(error) if page > 1 && matches!(error.downcast_ref(), Some(Unread::TooLong(_))) => {
                    self.shared.remember(&path, (page / SMALLER).max(1));
                }
                Ok(answer) if page < limit => {
                    let length = hyper::body::Body::size_hint(answer.body()).lower();
                    match page.saturating_mul(2) {
                        _ if length > LONGEST as u64 / 4 => {}
                        more if more < limit => self.shared.remember(&path, more),
                        _ => drop(self.shared.pages().remove(&path)),
                    }
                    return Ok(answer);
                }
                done => return done,
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Reads an answer to its end. It keeps its place until it is dropped.
    async fn read(&self, response: Response<Body>, namespace: &str, about: String) -> Result<Answer, Error> {
        let (parts, mut body) = response.into_parts();
        let (mut text, mut place) = (Vec::new(), None);
        loop {
            let Ok(frame) = tokio::time::timeout(STALL, body.frame()).await else {
                return Err(Unread::Stalled(about).into());
            };
            let Some(frame) = frame else { break };
            // Trailers say nothing here.
            let Ok(data) = frame?.into_data() else { continue };
            if text.len() + data.len() > LONGEST {
                return Err(Unread::TooLong(about).into());
            }
            if place.is_none() && text.len() + data.len() > SHORT {
                place = Some(self.place(namespace).await);
            }
            text.extend_from_slice(&data);
        }
        let bytes = Bytes::from_owner(Held { text, _place: place });
        let body = Full::new(bytes).map_err(|never| match never {});
        Ok(Response::from_parts(parts, body.boxed_unsync()))
    }

    /// Waits for a place. Lists of all namespaces have one of their own: whoever follows them may not get to read them
    /// while others wait for places.
    async fn place(&self, namespace: &str) -> Place {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            let turn = turns.entry(namespace.to_owned());
            Arc::clone(turn.or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        // Nobody closes them.
        let turn = turn.acquire_owned().await.ok();
        let place = match namespace {
            "" => None,
            _ => Arc::clone(&self.places).acquire_owned().await.ok(),
        };
        Place([turn, place])
    }

    fn remember(&self, path: &str, page: u32) {
        let mut pages = self.pages();
        if pages.len() >= REMEMBERED {
            pages.clear();
        }
        pages.insert(path.to_owned(), page);
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of a watch, one in each line, up to the first that is too long.
fn events(body: Body, about: String) -> UnsyncBoxBody<Bytes, Error> {
    let mut line = 0;
    let frames = body.into_data_stream().map(move |data| {
        let data = data?;
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            line += part.len();
            if line > LONGEST {
                return Err(Unread::TooLongEvent(about.clone()).into());
            }
            if part.ends_with(b"\n") {
                line = 0;
            }
        }
        Ok(Frame::data(data))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The namespace that a path is in; empty for all of them.
fn namespace(uri: &Uri) -> &str {
    let mut parts = uri.path().split('/').skip_while(|part| *part != "namespaces");
    parts.nth(1).unwrap_or_default()
}

fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let mut pairs = uri.query()?.split('&');
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn with_limit(uri: &Uri, limit: u32) -> Result<Uri, Error> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let pairs = pairs.map(|pair| match pair.starts_with("limit=") {
        true => format!("limit={limit}"),
        false => pair.to_owned(),
    });
    let mut parts = uri.clone().into_parts();
    let path = format!("{}?{}", uri.path(), pairs.collect::<Vec<_>>().join("&"));
    parts.path_and_query = Some(path.parse()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests;
