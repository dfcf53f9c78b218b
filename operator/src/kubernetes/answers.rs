//! How much of the API server's answers is read at once. Tenants decide what stands in objects and how many there are,
//! so no answer is kept beyond a bound, and few that are long are read at the same time. A layer below the client
//! enforces this for all callers.
//!
//! A watch or list of all namespaces goes on without an object that is too long: otherwise its author could hide the
//! objects of all others from the operator.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

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

mod left_out;
mod parts;
mod skim;

use left_out::{LeftOut, Page, events};
pub(crate) use parts::LONGEST;
use parts::{Error, Unread, next};

/// An answer beyond this length, in bytes, counts as long. Most objects are shorter.
const SHORT: usize = 64 << 10;

/// Long answers about namespaces that are read at once; beside one about all namespaces together.
const PLACES: usize = 2;

/// The factor by which a page that was too long is made smaller.
const SMALLER: u32 = 8;

/// Collections whose pages are smaller than they are asked for; what is known beyond that is forgotten.
const REMEMBERED: usize = 256;

type Answer = Response<UnsyncBoxBody<Bytes, Error>>;

/// A client that reads no more than it has memory for.
///
/// A page of a list that is too long is asked for again with fewer objects, down to one. Lists without a limit are refused
/// when they are too long, as objects are.
pub(crate) fn bounded(client: Client) -> Client {
    layer(client, None)
}

/// As [`bounded`], for a client that follows all objects of a kind, through a watch or a list of all namespaces: an object that is
/// too long is not there, as if it were deleted, and `left_out` counts it.
///
/// Other namespaces do not depend on it: a pod, a lock or a Secret concerns only locks of its own namespace, so its
/// author harms only that namespace. A node is its kubelet's, which is believed anyway. If a pod cannot be seen, its
/// role label stays as it is, and it takes no part in handoffs; its contender stays in the queue. Lists of one
/// namespace are still refused, so that a count of its pods never takes this one for gone.
pub(crate) fn followed(client: Client, left_out: Counter) -> Client {
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
    /// Reports objects that were left out; `None` if none may be.
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

    /// Waits for a place. Lists of all namespaces have one of their own: a client that follows them might not get to read them
    /// while others wait for places.
    async fn place(&self, namespace: &str) -> Place {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            let turn = turns.entry(namespace.to_owned());
            Arc::clone(turn.or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        // The semaphores are never closed.
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
