//! The application's own probes and hooks, answered in its place.
//!
//! A kubelet probes a container whether the application in it runs or waits for the lock, and restarts
//! it when that does not answer. So its probes come here: they pass while there is nothing to probe, and are
//! otherwise sent to the application as the kubelet would send them ([`handler`]). [`health`] decides which answer is
//! given.

pub(crate) mod grpc;
pub(crate) mod handler;
pub mod health;
pub(crate) mod http;
mod parse;
mod tcp;

use std::time::Duration;

pub use self::handler::{Check, Handler};

/// The startup probe: it has to pass once before its budget runs out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    pub check: Check,
    /// Not asked before this time since the application's start (`initialDelaySeconds`).
    pub delay: Duration,
    /// What the application has from its start on: delay + `failureThreshold` × `periodSeconds`.
    pub budget: Duration,
}

/// Probes and hooks of one container, without those that are commands in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppProbes {
    /// Whether the container is to be restarted.
    pub liveness: Option<Check>,
    /// Whether requests may come.
    pub readiness: Option<Check>,
    /// Whether the application has started. It may be a command, since its budget is counted here.
    pub startup: Option<Startup>,
    /// Asked after each start of the application.
    pub post_start: Option<Check>,
    /// Asked before the application is ended with its pod.
    pub pre_stop: Option<Check>,
}

/// What a kubelet asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Whether the container is to be restarted.
    Liveness,
    /// Whether requests may come.
    Readiness,
    /// Whether the application has started.
    Startup,
    /// The hook after the start.
    PostStart,
    /// The hook before the end.
    PreStop,
}

// === impl Kind ===

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::Liveness,
        Self::Readiness,
        Self::Startup,
        Self::PostStart,
        Self::PreStop,
    ];

    /// Its name in Kubernetes, and in paths.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
            Self::Startup => "startup",
            Self::PostStart => "postStart",
            Self::PreStop => "preStop",
        }
    }

    /// Whether a request makes the application do something, instead of only asking it.
    pub(crate) fn acts(self) -> bool {
        // The keeper itself sends the postStart hook: a request does not trigger it.
        self == Self::PreStop
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

// === impl AppProbes ===

impl AppProbes {
    pub fn check(&self, kind: Kind) -> Option<&Check> {
        match kind {
            Kind::Liveness => self.liveness.as_ref(),
            Kind::Readiness => self.readiness.as_ref(),
            Kind::Startup => self.startup.as_ref().map(|startup| &startup.check),
            Kind::PostStart => self.post_start.as_ref(),
            Kind::PreStop => self.pre_stop.as_ref(),
        }
    }

    /// Whether a kubelet may ask for a kind over HTTP. The result of a startup probe is reported by the liveness
    /// probe.
    pub(crate) fn answers(&self, kind: Kind) -> bool {
        self.check(kind).is_some() || (kind == Kind::Liveness && self.startup.is_some())
    }
}
