//! How much of the API server's answers is read at once. Tenants decide what stands in objects and how many there are,
//! so no answer is kept beyond a bound, and few that are long are read at the same time. A layer below the client sees to
//! it: whoever asks need not think of it.
//!
//! Who follows the objects of all namespaces goes on without one that is too long: else its author alone would blind the
//! operator to those of everybody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

use left_out::{LeftOut, Page, events};

mod left_out;
mod skim;

/// The longest answer, and the longest event of a watch, in bytes. An object has 1.5 MiB at most where it is stored
/// (`--max-request-bytes` of etcd), and JSON writes some characters in six bytes, such as `<`. It can be longer than this,
/// too: what is empty and takes two bytes there has its name in JSON.
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
    layer(client, None)
}

/// As [`bounded`], for who follows all objects of a kind, through a watch or a list of all namespaces: an object that is
/// too long is not there, as if it were deleted, and `left_out` counts it.
///
/// Nothing of other namespaces hangs on it: a pod, a lock or a Secret says something of locks of its namespace alone, so
/// who makes one too long harms what is its own. A node is its kubelet's, which is believed anyway. Of a pod that cannot be
/// seen the role label stays as it is, and no handoff goes to it or on its word; its contender is in the queue as ever.
/// Lists of one namespace are refused still, so nobody counts its pods and takes this one for gone.
pub fn followed(client: Client, left_out: Counter) -> Client {
    layer(client, Some(left_out))
}

fn layer(client: Client, left_out: Option<Counter>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let shared = Arc::new(Shared {
        places: Arc::new(Semaphore::new(PLACES)),
        turns: Mutex::default(),
        pages: Mutex::default(),
        left_out: left_out.map(LeftOut::new),
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
    /// Where it is told that an object was left out; none if nothing may be.
    left_out: Option<LeftOut>,
}

/// Mark of a page whose object was left out: the next one is likely to be as long.
#[derive(Clone)]
struct WithoutOne;

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
            let left_out = self.shared.left_out.clone();
            return Ok(response.map(|body| events(body, about, left_out)));
        }
        let namespace = namespace(request.uri()).to_owned();
        let limit = parameter(request.uri(), "limit").and_then(|limit| limit.parse::<u32>().ok());
        let Some(limit) = limit.filter(|_| is_read) else {
            let response = self.client.send(request).await?;
            return self.shared.read(response, &namespace, about, None).await;
        };
        let left_out = self.shared.left_out.as_ref().filter(|_| namespace.is_empty());
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
            let left_out = left_out.filter(|_| page == 1);
            match self.shared.read(response, &namespace, about, left_out).await {
                Err(error) if page > 1 && matches!(error.downcast_ref(), Some(Unread::TooLong(_))) => {
                    self.shared.remember(&path, (page / SMALLER).max(1));
                }
                Ok(answer) if page < limit => {
                    let length = hyper::body::Body::size_hint(answer.body()).lower();
                    let was_long =
                        length > LONGEST as u64 / 4 || answer.extensions().get::<WithoutOne>().is_some();
                    match page.saturating_mul(2) {
                        _ if was_long => {}
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
    /// Reads an answer to its end. It keeps its place until it is dropped. With `left_out` it is a page of one object, and
    /// if that is too long, a page of none.
    async fn read(
        &self,
        response: Response<Body>,
        namespace: &str,
        about: String,
        left_out: Option<&LeftOut>,
    ) -> Result<Answer, Error> {
        let (parts, mut body) = response.into_parts();
        let (mut text, mut place) = (Vec::new(), None);
        loop {
            let Some(data) = next(&mut body, &about).await? else {
                break;
            };
            if text.len() + data.len() > LONGEST {
                let Some(left_out) = left_out else {
                    return Err(Unread::TooLong(about).into());
                };
                let mut page = Page::default();
                page.read(&text);
                page.read(&data);
                drop((text, place));
                let instead = page.end(body, about, left_out).await?;
                let mut answer = Response::from_parts(parts, full(instead.into()));
                answer.extensions_mut().insert(WithoutOne);
                return Ok(answer);
            }
            if place.is_none() && text.len() + data.len() > SHORT {
                place = Some(self.place(namespace).await);
            }
            text.extend_from_slice(&data);
        }
        let bytes = Bytes::from_owner(Held { text, _place: place });
        Ok(Response::from_parts(parts, full(bytes)))
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

/// The next part of an answer; none at its end.
async fn next(body: &mut Body, about: &str) -> Result<Option<Bytes>, Error> {
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

fn full(bytes: Bytes) -> UnsyncBoxBody<Bytes, Error> {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
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
