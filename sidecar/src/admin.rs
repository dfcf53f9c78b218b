//! Probes and metrics over TCP.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use lockkeeper_daemon::accept::{self, Stopping};
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::http::{self, Answer, Routes};
use lockkeeper_daemon::token::AppToken;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::metrics::LockMetrics;
use crate::probes::Kind;
use crate::probes::health::Health;
use crate::view::KeeperView;

const KNOWN: &str =
    "/startupz, /readyz, /queuedz, /livez, /metrics and, with the right token, /app/TOKEN/KIND";

const PLAIN: &str = "text/plain; charset=utf-8";

/// OpenMetrics 1.0, section "Content Type".
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A bound TCP port for probes and metrics.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    app_token: Option<AppToken>,
}

#[derive(Clone)]
struct Admin {
    view: KeeperView,
    health: Health,
    app_token: Option<AppToken>,
    metrics: LockMetrics,
    registry: Arc<Registry>,
}

// === impl AdminServer ===

impl AdminServer {
    /// Listens on `address`. Where IPv6 is switched off, `[::]` is understood as `0.0.0.0`: both mean
    /// all addresses. To be called in a tokio runtime.
    ///
    /// # Errors
    /// When the address is in use, or is not one of this machine.
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let listener = accept::listen(address).map_err(|error| {
            Failure::unavailable(format!(
                "cannot listen on {address} for probes: {error}; choose another --admin-listen"
            ))
        })?;
        Ok(Self {
            listener,
            app_token: None,
        })
    }

    /// Answers for the application only if the path holds this token. Without a token, every client that reaches the
    /// port may ask the application's probes, and the hook is not sent.
    #[must_use]
    pub fn with_app_token(self, app_token: Option<AppToken>) -> Self {
        Self { app_token, ..self }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` completes.
    pub async fn serve(
        self,
        view: KeeperView,
        health: Health,
        metrics: LockMetrics,
        registry: Registry,
        stop: impl Future<Output = ()>,
    ) {
        let routes = routes(view, health, self.app_token, metrics, registry);
        http::serve(self.listener, routes, stop).await;
    }
}

pub(crate) fn routes(
    view: KeeperView,
    health: Health,
    app_token: Option<AppToken>,
    metrics: LockMetrics,
    registry: Registry,
) -> impl Routes {
    Admin {
        view,
        health,
        app_token,
        metrics,
        registry: Arc::new(registry),
    }
}

// === impl Admin ===

impl Admin {
    fn startup(&self) -> Answer {
        probe(
            self.metrics.was_acquired() || self.view.now().is_held(),
            "the lock was held at least once",
            || format!("the lock was not held yet: it is {}", self.view.now().explain()),
        )
    }

    fn ready(&self) -> Answer {
        let now = self.view.now();
        probe(now.is_held(), "the lock is held", || {
            format!("the lock is not held: it is {}", now.explain())
        })
    }

    fn queued(&self) -> Answer {
        let now = self.view.now();
        probe(now.is_queued(), "in the queue", || {
            format!(
                "the place in the queue is not certain: the lock is {}",
                now.explain()
            )
        })
    }

    fn live(&self) -> Answer {
        probe(self.view.is_alive(), "the keeper runs", || {
            "the task that keeps the lock has ended".to_owned()
        })
    }

    /// A probe or hook of the application. A client without the token learns nothing, not even which of them exist.
    /// No answer repeats the path, since the token is in it.
    async fn app(&self, request: &Request<Incoming>, below: &str) -> Answer {
        let name = match &self.app_token {
            None => below,
            Some(token) => match below.split_once('/') {
                Some((said, name)) if token.is(said) => name,
                _ => return http::sentence(StatusCode::NOT_FOUND, format!("there is {KNOWN} here")),
            },
        };
        let Some(kind) = Kind::of_name(name) else {
            let names = Kind::ALL.map(Kind::name).join(", ");
            return http::sentence(
                StatusCode::NOT_FOUND,
                format!("that is no probe or hook: there is {names}"),
            );
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return http::wrong_method_for(name, request, "GET");
        }
        if !self.health.answers(kind) {
            return http::sentence(
                StatusCode::NOT_FOUND,
                format!("--app-probes has no {name}: nothing can be said about it"),
            );
        }
        if self.app_token.is_none() && kind.acts() {
            return http::sentence(
                StatusCode::NOT_FOUND,
                format!(
                    "{name} is sent only for a request with a token, and this keeper has none: give --app-token \
                     (LOCKKEEPER_APP_TOKEN), and let the kubelet ask /app/TOKEN/{name}"
                ),
            );
        }
        match self.health.answer(kind).await {
            Ok(reason) => http::text(StatusCode::OK, PLAIN, format!("{reason}\n")),
            Err(problem) => http::text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{problem}\n")),
        }
    }

    fn scrape(&self) -> Answer {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => http::text(StatusCode::OK, OPEN_METRICS, text),
            Err(error) => http::text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, error.to_string()),
        }
    }
}

impl Routes for Admin {
    async fn answer(self, request: Request<Incoming>, _: Stopping) -> Answer {
        let answer = match request.uri().path() {
            "/startupz" => Self::startup,
            "/readyz" => Self::ready,
            "/queuedz" => Self::queued,
            "/livez" => Self::live,
            "/metrics" => Self::scrape,
            path => {
                return match path.strip_prefix("/app/") {
                    Some(below) => self.app(&request, below).await,
                    None => http::not_found(&request, KNOWN),
                };
            }
        };
        match *request.method() {
            Method::GET | Method::HEAD => answer(&self),
            _ => http::wrong_method(&request, "GET"),
        }
    }
}

fn probe(passed: bool, yes: &'static str, no: impl FnOnce() -> String) -> Answer {
    if passed {
        http::text(StatusCode::OK, PLAIN, format!("{yes}\n"))
    } else {
        http::text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{}\n", no()))
    }
}
