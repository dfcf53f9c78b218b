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
use crate::view::LockView;

/// Event streams at once. They last, so they may not take the slots of those who only ask.
const EVENT_STREAMS: usize = http::CONNECTIONS / 2;

const KNOWN: &str = "GET /v1/lock, GET /v1/lock/events and POST /v1/lock/release";

/// Answers the calls about one lock.
#[derive(Clone)]
pub(super) struct LockApi {
    view: LockView,
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
    pub(super) fn new(view: LockView, commands: mpsc::Sender<Command>, release_timeout: Duration) -> Self {
        Self {
            view,
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

impl Routes for LockApi {
    async fn answer(self, request: Request<Incoming>, stopping: Stopping) -> Answer {
        match (request.uri().path(), request.method()) {
            ("/v1/lock", &Method::GET) => http::json(StatusCode::OK, &self.view.now()),
            ("/v1/lock/events", &Method::GET) => self.events(stopping),
            ("/v1/lock/release", &Method::POST) => self.release().await,
            ("/v1/lock" | "/v1/lock/events", _) => http::wrong_method(&request, "GET"),
            ("/v1/lock/release", _) => http::wrong_method(&request, "POST"),
            _ => http::not_found(&request, KNOWN),
        }
    }
}
