//! The calls.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{Command, events};
use crate::duration;
use crate::http::{self, Answer, Routes, Stopping};
use crate::probes::Kind;
use crate::probes::health::Health;
use crate::view::LockView;

/// Event streams at once. They last, so they may not take the slots of those who only ask.
const EVENT_STREAMS: usize = http::CONNECTIONS / 2;

const KNOWN: &str = "GET /v1/lock, GET /v1/lock/events, POST /v1/lock/release, POST /v1/terminating, \
                     GET /v1/app/KIND and POST /v1/app/started/NUMBER";

/// Answers the calls about one lock.
#[derive(Clone)]
pub(super) struct LockApi {
    view: LockView,
    health: Health,
    commands: mpsc::Sender<Command>,
    release_timeout: Duration,
    event_streams: Arc<Semaphore>,
    one_release: Arc<Semaphore>,
}

/// Answer to a confirmed release.
#[derive(serde::Serialize)]
struct Released {
    released: bool,
}

impl LockApi {
    pub(super) fn new(
        view: LockView,
        health: Health,
        commands: mpsc::Sender<Command>,
        release_timeout: Duration,
    ) -> Self {
        Self {
            view,
            health,
            commands,
            release_timeout,
            event_streams: Arc::new(Semaphore::new(EVENT_STREAMS)),
            one_release: Arc::new(Semaphore::new(1)),
        }
    }

    fn events(self, stopping: Stopping) -> Answer {
        let Ok(slot) = self.event_streams.try_acquire_owned() else {
            return http::sentence(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{EVENT_STREAMS} clients follow the events already, which is the most"),
            );
        };
        let mut answer = Response::new(events::body(self.view, stopping, slot).boxed_unsync());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }

    async fn release(self) -> Answer {
        let Ok(_only_one) = self.one_release.try_acquire() else {
            return http::sentence(StatusCode::CONFLICT, "the lock is being released already");
        };
        let lock = self.view.now();
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
            self.commands.send(Command::StepDown(answer)).await.ok()?;
            confirmation.await.ok()
        };
        match tokio::time::timeout(self.release_timeout, confirmed).await {
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
                    duration::format(self.release_timeout)
                ),
            ),
        }
    }
}

/// Answer to what there is nothing to say about.
#[derive(serde::Serialize)]
struct Noted {
    noted: bool,
}

impl LockApi {
    async fn terminating(self) -> Answer {
        let (answer, noted) = oneshot::channel();
        let noted = match self.commands.send(Command::Terminating(answer)).await {
            Ok(()) => noted.await.ok(),
            Err(_) => None,
        };
        match noted {
            Some(Ok(())) => http::json(StatusCode::OK, &Noted { noted: true }),
            Some(Err(reason)) => http::sentence(StatusCode::CONFLICT, reason),
            None => http::sentence(StatusCode::SERVICE_UNAVAILABLE, "the keeper is ending already"),
        }
    }

    /// What is below `/v1/app/`.
    async fn app(self, request: Request<Incoming>, rest: &str) -> Answer {
        let start = rest.strip_prefix("started/").map(str::parse);
        match (Kind::of_name(rest), start, request.method()) {
            (Some(kind), _, &Method::GET) => http::json(StatusCode::OK, &self.health.order(kind).await),
            (Some(_), ..) => http::wrong_method(&request, "GET"),
            (None, Some(Ok(start)), &Method::POST) => {
                self.health.has_started(start);
                http::json(StatusCode::OK, &Noted { noted: true })
            }
            (None, Some(Ok(_)), _) => http::wrong_method(&request, "POST"),
            _ => http::not_found(&request, KNOWN),
        }
    }
}

impl Routes for LockApi {
    async fn answer(self, request: Request<Incoming>, stopping: Stopping) -> Answer {
        match (request.uri().path(), request.method()) {
            ("/v1/lock", &Method::GET) => http::json(StatusCode::OK, &self.view.now()),
            ("/v1/lock/events", &Method::GET) => self.events(stopping),
            ("/v1/lock/release", &Method::POST) => self.release().await,
            ("/v1/terminating", &Method::POST) => self.terminating().await,
            ("/v1/lock" | "/v1/lock/events", _) => http::wrong_method(&request, "GET"),
            ("/v1/lock/release" | "/v1/terminating", _) => http::wrong_method(&request, "POST"),
            (path, _) if path.starts_with("/v1/app/") => {
                let rest = path["/v1/app/".len()..].to_owned();
                self.app(request, &rest).await
            }
            _ => http::not_found(&request, KNOWN),
        }
    }
}
