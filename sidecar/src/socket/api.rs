//! The calls at the keeper's socket: what each one answers, and which users may make it.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use lockkeeper_daemon::accept::Stopping;
use lockkeeper_daemon::duration;
use lockkeeper_daemon::http::{self, Answer, Routes};
use tokio::net::unix::UCred;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::events;
use super::inside::{Inside, Tree};
use crate::peer::Users;
use crate::probes::Kind;
use crate::probes::health::Health;
use crate::view::KeeperView;

/// The call of `lockkeeper release --abandon-survivors`.
const SURVIVORS: &str = "/v1/lock/abandon-survivors";

/// Where the keeper answers.
type Reply = oneshot::Sender<Result<(), String>>;

/// Event streams at once of users that may change the lock, and as many of all others: on a socket in an open folder strangers
/// could take all of them. They last, so they may not take the slots of short requests.
const EVENT_STREAMS: usize = 16;

const KNOWN: &str = "GET /v1/lock, GET /v1/lock/events, GET /v1/lock/inside, POST /v1/lock/release, \
                     POST /v1/lock/abandon-survivors, POST /v1/terminating, GET /v1/app/KIND and POST /v1/app/started/NUMBER";

/// What a client asks the keeper to do.
#[derive(Debug)]
pub enum Command {
    /// Stop the application, release the lock, queue again at the end. The answer comes when the
    /// release is confirmed, or says in a sentence why it could not be.
    StepDown(oneshot::Sender<Result<(), String>>),
    /// Leave the lock to expire though something has outlived its deadline.
    AbandonSurvivors(oneshot::Sender<Result<(), String>>),
    /// The pod is ending: start nothing any more, and have everything stopped before its grace is over.
    Terminating(oneshot::Sender<Result<(), String>>),
}

/// What is served at the socket, and which users may do what.
#[derive(Clone, Debug)]
pub struct Served {
    pub view: KeeperView,
    pub health: Health,
    pub commands: mpsc::Sender<Command>,
    /// How long a client waits for the confirmation of a release.
    pub release_timeout: Duration,
    /// The users that may change something; every user may ask.
    pub users: Users,
    /// The application's processes, where this keeper can see them (`run`).
    pub tree: Option<Tree>,
}

/// Answers the calls about one lock.
#[derive(Clone)]
pub(super) struct LockApi {
    served: Served,
    event_streams: Arc<Semaphore>,
    event_streams_of_others: Arc<Semaphore>,
    one_release: Arc<Semaphore>,
    /// A look at one tree takes some hundred reads of `/proc`, so there is only one at a time.
    one_look: Arc<Semaphore>,
}

/// Answer to a confirmed release.
#[derive(serde::Serialize)]
struct Released {
    released: bool,
}

impl LockApi {
    pub(super) fn new(served: Served) -> Self {
        Self {
            served,
            event_streams: Arc::new(Semaphore::new(EVENT_STREAMS)),
            event_streams_of_others: Arc::new(Semaphore::new(EVENT_STREAMS)),
            one_release: Arc::new(Semaphore::new(1)),
            one_look: Arc::new(Semaphore::new(1)),
        }
    }

    fn events(self, peer: Option<UCred>, stopping: Stopping) -> Answer {
        let (slots, whose) = if peer.is_some_and(|peer| self.served.users.allow(peer.uid())) {
            (self.event_streams, "of users that may change the lock")
        } else {
            (self.event_streams_of_others, "of other users")
        };
        let Ok(slot) = slots.try_acquire_owned() else {
            return http::sentence(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{EVENT_STREAMS} clients {whose} follow the events already, which is the most"),
            );
        };
        let mut answer = Response::new(events::body(self.served.view, stopping, slot).boxed_unsync());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }

    async fn release(self) -> Answer {
        let Ok(_only_one) = self.one_release.try_acquire() else {
            return http::sentence(StatusCode::CONFLICT, "the lock is being released already");
        };
        let lock = self.served.view.now();
        if !lock.is_held() {
            return http::sentence(
                StatusCode::CONFLICT,
                format!(
                    "the lock is not held, so there is nothing to release: it is {}",
                    lock.explain()
                ),
            );
        }
        let (answer, confirmation) = oneshot::channel();
        let confirmed = async {
            self.served.commands.send(Command::StepDown(answer)).await.ok()?;
            confirmation.await.ok()
        };
        match tokio::time::timeout(self.served.release_timeout, confirmed).await {
            Ok(Some(Ok(()))) => http::json(StatusCode::OK, &Released { released: true }),
            Ok(Some(Err(reason))) => http::sentence(StatusCode::INTERNAL_SERVER_ERROR, reason),
            Ok(None) => http::sentence(
                StatusCode::SERVICE_UNAVAILABLE,
                "the keeper ended before it confirmed the release",
            ),
            Err(_) => http::sentence(
                StatusCode::GATEWAY_TIMEOUT,
                format!(
                    "the release was begun and not confirmed within {}",
                    duration::format(self.served.release_timeout)
                ),
            ),
        }
    }
}

/// An empty answer.
#[derive(serde::Serialize)]
struct Noted {
    noted: bool,
}

impl LockApi {
    /// Passes a command to the keeper and waits until the keeper has taken it.
    async fn note(self, command: impl FnOnce(Reply) -> Command) -> Answer {
        let (answer, noted) = oneshot::channel();
        let noted = match self.served.commands.send(command(answer)).await {
            Ok(()) => noted.await.ok(),
            Err(_) => None,
        };
        match noted {
            Some(Ok(())) => http::json(StatusCode::OK, &Noted { noted: true }),
            Some(Err(reason)) => http::sentence(StatusCode::CONFLICT, reason),
            None => http::sentence(StatusCode::SERVICE_UNAVAILABLE, "the keeper is ending already"),
        }
    }

    /// Whether the peer is a part of the application.
    async fn inside(&self, peer: Option<UCred>) -> Answer {
        let pid = peer.and_then(|peer| peer.pid()).unwrap_or_default();
        let unknown = |status, why: &dyn Display| {
            let what =
                "whether this process belongs to the application of the outer `lockkeeper run` is not known";
            http::sentence(status, format!("{what}: {why}"))
        };
        let Some(tree) = self.served.tree else {
            let why = "the keeper of a pod does not see the application's processes";
            return unknown(StatusCode::NOT_IMPLEMENTED, &why);
        };
        let _only_one = self.one_look.acquire().await;
        match tree.holds(pid).await {
            Ok(inside) => http::json(StatusCode::OK, &Inside { inside }),
            Err(error) => unknown(StatusCode::INTERNAL_SERVER_ERROR, &error),
        }
    }

    /// Only the keeper's own user, root, and named users may change something; only the first two may give survivors up.
    fn refuse(&self, request: &Request<Incoming>, peer: Option<UCred>) -> Option<Answer> {
        if request.method() != Method::POST {
            return None;
        }
        let (users, named) = match request.uri().path() {
            SURVIVORS => (&Users::own(), ""),
            _ => (&self.served.users, ", or one of --guard-user"),
        };
        let user = peer.map(|peer| peer.uid());
        let is_allowed = user.is_some_and(|user| users.allow(user));
        let who = user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
        (!is_allowed).then(|| {
            http::sentence(
                StatusCode::FORBIDDEN,
                format!(
                    "{who} may look at this lock but not change it: that is for root and the keeper's own user{named}"
                ),
            )
        })
    }

    /// What is below `/v1/app/`.
    async fn app(self, request: Request<Incoming>, rest: &str) -> Answer {
        let start = rest.strip_prefix("started/").map(str::parse);
        match (Kind::of_name(rest), start, request.method()) {
            (Some(kind), _, &Method::GET) => {
                http::json(StatusCode::OK, &self.served.health.order(kind).await)
            }
            (Some(_), ..) => http::wrong_method(&request, "GET"),
            (None, Some(Ok(start)), &Method::POST) => {
                self.served.health.has_started(start);
                http::json(StatusCode::OK, &Noted { noted: true })
            }
            (None, Some(Ok(_)), _) => http::wrong_method(&request, "POST"),
            _ => http::not_found(&request, KNOWN),
        }
    }
}

impl Routes for LockApi {
    async fn answer(self, request: Request<Incoming>, stopping: Stopping) -> Answer {
        let peer = request.extensions().get::<UCred>().copied();
        if let Some(refusal) = self.refuse(&request, peer) {
            return refusal;
        }
        match (request.uri().path(), request.method()) {
            ("/v1/lock", &Method::GET) => http::json(StatusCode::OK, &self.served.view.now()),
            ("/v1/lock/events", &Method::GET) => self.events(peer, stopping),
            ("/v1/lock/inside", &Method::GET) => self.inside(peer).await,
            ("/v1/lock/release", &Method::POST) => self.release().await,
            (SURVIVORS, &Method::POST) => self.note(Command::AbandonSurvivors).await,
            ("/v1/terminating", &Method::POST) => self.note(Command::Terminating).await,
            ("/v1/lock" | "/v1/lock/events" | "/v1/lock/inside", _) => http::wrong_method(&request, "GET"),
            ("/v1/lock/release" | SURVIVORS | "/v1/terminating", _) => http::wrong_method(&request, "POST"),
            (path, _) if path.starts_with("/v1/app/") => {
                let rest = path["/v1/app/".len()..].to_owned();
                self.app(request, &rest).await
            }
            _ => http::not_found(&request, KNOWN),
        }
    }
}
