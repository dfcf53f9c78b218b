//! Decides whether the application is to be asked, and the answer if it is not.
//!
//! While the application does not run, or is stopped, everything passes. After a start with a startup probe, its
//! budget is counted here, from each start: the kubelet's own startup probe was used up while we waited for the lock.
//! Until the startup check has passed, the application is alive and not ready; when the budget is over, liveness
//! fails, and the kubelet restarts the container.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper_lock::BootInstant;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{AppProbes, Check, Handler, Kind, Startup};

/// An application that runs under the lock, and is not stopped or being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Counts the starts, from 1.
    pub start: u64,
    /// When it was started, or went on.
    pub since: BootInstant,
}

/// Answers in the application's place. A clone is cheap, and knows the same.
#[derive(Clone, Debug)]
pub struct Health {
    app: watch::Receiver<Option<Running>>,
    probes: Arc<AppProbes>,
    /// The last start whose startup check has passed; 0 before the first.
    started: Arc<AtomicU64>,
}

/// What is known of the start.
enum Progress {
    Started,
    Starting(String),
    /// Only a command in the application's container can tell.
    Unknown {
        is_over: bool,
    },
    Failed(String),
}

/// What `lockkeeper probe` is to do with its command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Whether to execute it. If the keeper can ask the application itself, this is the answer.
    pub verdict: Verdict,
    pub reason: String,
    /// The startup check to execute first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<StartupOrder>,
}

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It passes, without a look at the application.
    Pass,
    Fail,
    /// The application is asked.
    Run,
}

/// A startup check that is a command. Its success is to be told to the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartupOrder {
    pub command: Vec<String>,
    pub timeout_seconds: u64,
    /// The start that it is about.
    pub start: u64,
    /// The budget is over.
    pub is_over: bool,
}

const ABSENT: &str = "the application does not run under the lock now";

// === impl Health ===

impl Health {
    /// With the application as the keeper publishes it.
    pub fn new(app: watch::Receiver<Option<Running>>, probes: AppProbes) -> Self {
        Self {
            app,
            probes: Arc::new(probes),
            started: Arc::default(),
        }
    }

    pub(crate) fn answers(&self, kind: Kind) -> bool {
        self.probes.answers(kind)
    }

    /// The answer to a kubelet: why it passes, or why it fails.
    ///
    /// # Errors
    /// When the kubelet is to see a failure.
    pub(crate) async fn answer(&self, kind: Kind) -> Result<String, String> {
        let Some(running) = self.running() else {
            return Ok(ABSENT.to_owned());
        };
        let answer = self.of_the_application(kind, running).await;
        // An application that is stopped in the middle of an answer must not be restarted because of it.
        if self.running() != Some(running) {
            return Ok(ABSENT.to_owned());
        }
        answer
    }

    /// What `lockkeeper probe` is to do.
    pub(crate) async fn order(&self, kind: Kind) -> Order {
        let Some(running) = self.running() else {
            return Order::new(Verdict::Pass, ABSENT);
        };
        let is_hook = matches!(kind, Kind::PostStart | Kind::PreStop);
        // Its budget is unknown: let the kubelet count.
        let is_unknown = kind == Kind::Startup && self.probes.startup.is_none();
        if is_hook || is_unknown {
            return Order::new(Verdict::Run, "the application runs");
        }
        match (self.progress(running).await, kind) {
            (Progress::Started, Kind::Startup) => Order::new(Verdict::Pass, "it has started"),
            (Progress::Started, _) if self.probes.check(kind).is_none() => {
                Order::new(Verdict::Run, "the application runs")
            }
            (Progress::Started, _) => match self.answer(kind).await {
                Ok(reason) => Order::new(Verdict::Pass, reason),
                Err(problem) => Order::new(Verdict::Fail, problem),
            },
            (Progress::Starting(problem), Kind::Readiness) => Order::new(Verdict::Fail, problem),
            (Progress::Starting(problem), _) => Order::new(Verdict::Pass, problem),
            (Progress::Failed(problem), _) => Order::new(Verdict::Fail, problem),
            (Progress::Unknown { is_over: false }, Kind::Startup) => {
                Order::new(Verdict::Pass, "it is being started")
            }
            (Progress::Unknown { is_over }, _) => Order {
                startup: self.startup_order(running.start, is_over),
                ..Order::new(Verdict::Run, "it is being started")
            },
        }
    }

    /// `lockkeeper probe` has seen the startup check of a start pass.
    pub(crate) fn has_started(&self, start: u64) {
        self.started.fetch_max(start, Ordering::Relaxed);
    }

    /// The hook to send after a start.
    pub(crate) fn post_start(&self) -> Option<Check> {
        self.probes.post_start.clone()
    }

    fn running(&self) -> Option<Running> {
        *self.app.borrow()
    }

    fn startup_order(&self, start: u64, is_over: bool) -> Option<StartupOrder> {
        match self.probes.check(Kind::Startup) {
            Some(Check {
                handler: Handler::Exec(command),
                timeout,
            }) => Some(StartupOrder {
                command: command.clone(),
                timeout_seconds: timeout.as_secs(),
                start,
                is_over,
            }),
            _ => None,
        }
    }

    async fn of_the_application(&self, kind: Kind, running: Running) -> Result<String, String> {
        match kind {
            Kind::PostStart => return Ok("it is sent after each start of the application".to_owned()),
            Kind::PreStop => return self.own(kind).await,
            Kind::Liveness | Kind::Readiness | Kind::Startup => {}
        }
        match (self.progress(running).await, kind) {
            (Progress::Failed(problem), _) | (Progress::Starting(problem), Kind::Readiness) => Err(problem),
            (Progress::Starting(problem), _) => Ok(problem),
            (Progress::Started, Kind::Startup) => Ok("it has started".to_owned()),
            (Progress::Unknown { is_over: false }, Kind::Readiness) => Err("it is being started".to_owned()),
            (Progress::Unknown { is_over: false }, _) => Ok("it is being started".to_owned()),
            (Progress::Started | Progress::Unknown { .. }, _) => self.own(kind).await,
        }
    }

    /// The application's own answer.
    async fn own(&self, kind: Kind) -> Result<String, String> {
        match (self.probes.check(kind), kind) {
            (None, _) => Ok("the application has no such probe".to_owned()),
            (Some(check), Kind::PreStop | Kind::PostStart) => {
                check.send().await.map(|()| "the application was told".to_owned())
            }
            (Some(check), _) => check
                .ask()
                .await
                .map(|()| "the application says so itself".to_owned()),
        }
    }

    async fn progress(&self, running: Running) -> Progress {
        let Some(Startup { check, delay, budget }) = &self.probes.startup else {
            return Progress::Started;
        };
        if self.started.load(Ordering::Relaxed) >= running.start {
            return Progress::Started;
        }
        let elapsed = BootInstant::now().saturating_since(running.since);
        let is_over = elapsed >= *budget;
        if matches!(check.handler, Handler::Exec(_)) {
            return Progress::Unknown { is_over };
        }
        if elapsed < *delay {
            return Progress::Starting(
                "it is being started, and not asked before its initial delay".to_owned(),
            );
        }
        match check.ask().await {
            Ok(()) => {
                self.has_started(running.start);
                Progress::Started
            }
            Err(problem) if is_over => {
                Progress::Failed(format!("it has not started within {budget:?}: {problem}"))
            }
            Err(problem) => Progress::Starting(format!("it is being started: {problem}")),
        }
    }
}

// === impl Order ===

impl Order {
    fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            startup: None,
        }
    }
}
