//! What Prometheus sees. All names begin with `lockkeeper_`; all labels are there from the start, at 0.

use std::time::Duration;

use lockkeeper_lock::{LockState, LossReason};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::link::protocol::Containment;
use crate::view::KeeperView;

type Label = [(&'static str, &'static str); 1];

/// Bounds of what usually takes milliseconds, in seconds: 1 ms to 10 s.
const SHORT: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// What happened to one lock. Methods are named after it; a clone counts into the same numbers.
#[derive(Clone, Debug)]
pub struct LockMetrics {
    acquisitions: Counter,
    losses: Family<Label, Counter>,
    releases: Family<Label, Counter>,
    kills: Family<Label, Counter>,
    survivors: Counter,
    session_moves: Counter,
    takeovers: Counter,
    wait: Histogram,
    hold: Histogram,
    renewal: Histogram,
}

/// How a release ended. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The application was seen to be gone, and the place in the queue was given up.
    Confirmed,
    /// It was not seen to be gone; the place was left to expire.
    Abandoned,
}

/// A signal by which the guard stops the application. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    Term,
    Kill,
    Stop,
}

/// The current state of the lock, computed at each scrape so that it is never out of date.
#[derive(Debug)]
struct LockNow(KeeperView);

/// A registry for the metrics of this process, with `lockkeeper_build_info`. All have the label `lock` if it is given: in a
/// pod Prometheus knows the lock by the pod's labels.
pub fn registry(lock: Option<&str>) -> Registry {
    let labels = lock.map(|lock| ("lock".into(), lock.to_owned().into()));
    let mut registry = Registry::with_prefix_and_labels("lockkeeper", labels.into_iter());
    registry.register(
        "build",
        "Version of this binary",
        Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
    );
    registry
}

/// Adds what `view` shows at the moment of a scrape: `held`, `max_holders`, `state`,
/// `fencing_token`, `queue_position`, `lease_remaining_seconds`, `stop_grace_seconds`, `session_timeout_seconds`,
/// `renewal_interval_seconds`, `patience_seconds`,
/// `kept_for_survivors`, `containment`.
pub fn register_view(view: KeeperView, registry: &mut Registry) {
    registry.register_collector(Box::new(LockNow(view)));
}

// === impl LockMetrics ===

impl LockMetrics {
    /// Adds the counters and histograms to a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            acquisitions: Counter::default(),
            losses: at_zero("reason", LossReason::ALL.map(LossReason::name)),
            releases: at_zero("outcome", ReleaseOutcome::ALL.map(ReleaseOutcome::name)),
            kills: at_zero("signal", StopSignal::ALL.map(StopSignal::name)),
            survivors: Counter::default(),
            session_moves: Counter::default(),
            takeovers: Counter::default(),
            // From a handoff to a standby's whole life.
            wait: Histogram::new(SHORT.into_iter().chain([60.0, 600.0, 3_600.0, 86_400.0])),
            // 1 s to 12 days.
            hold: Histogram::new(exponential_buckets(1.0, 4.0, 11)),
            renewal: Histogram::new(SHORT),
        };
        registry.register(
            "acquisitions",
            "Times that the lock was acquired",
            metrics.acquisitions.clone(),
        );
        registry.register(
            "losses",
            "Times that the lock was lost, by reason",
            metrics.losses.clone(),
        );
        registry.register(
            "releases",
            "Times that the lock was given up, by outcome",
            metrics.releases.clone(),
        );
        registry.register(
            "kills",
            "Signals sent to stop the application",
            metrics.kills.clone(),
        );
        registry.register(
            "survivors",
            "Times that something of the application was seen to outlive its deadline",
            metrics.survivors.clone(),
        );
        registry.register(
            "session_moves",
            "Times that the session was taken to another server",
            metrics.session_moves.clone(),
        );
        registry.register(
            "takeovers",
            "Times that the place of a silent contender was taken",
            metrics.takeovers.clone(),
        );
        registry.register_with_unit(
            "wait_duration",
            "Time from asking for the lock to holding it",
            Unit::Seconds,
            metrics.wait.clone(),
        );
        registry.register_with_unit(
            "hold_duration",
            "Time for which the lock was held",
            Unit::Seconds,
            metrics.hold.clone(),
        );
        registry.register_with_unit(
            "renewal_duration",
            "Time from sending a renewal to its acknowledgement",
            Unit::Seconds,
            metrics.renewal.clone(),
        );
        metrics
    }

    /// The lock is held, `waited` after it was asked for.
    pub fn acquired(&self, waited: Duration) {
        self.acquisitions.inc();
        self.wait.observe(waited.as_secs_f64());
    }

    /// The lock was lost; `held` when it had been held, and for how long.
    pub fn lost(&self, reason: LossReason, held: Option<Duration>) {
        self.losses.get_or_create(&[("reason", reason.name())]).inc();
        if let Some(held) = held {
            self.hold.observe(held.as_secs_f64());
        }
    }

    /// The lock was given up after it had been held for `held`.
    pub fn released(&self, outcome: ReleaseOutcome, held: Duration) {
        self.releases.get_or_create(&[("outcome", outcome.name())]).inc();
        self.hold.observe(held.as_secs_f64());
    }

    /// The guard has sent a signal to the application.
    pub fn killed(&self, signal: StopSignal) {
        self.kills.get_or_create(&[("signal", signal.name())]).inc();
    }

    /// The guard has seen something outlive SIGKILL.
    pub(crate) fn survived(&self) {
        self.survivors.inc();
    }

    /// A renewal was acknowledged, `took` after it was sent.
    pub fn renewed(&self, took: Duration) {
        self.renewal.observe(took.as_secs_f64());
    }

    /// The session was taken to another server.
    pub fn session_moved(&self) {
        self.session_moves.inc();
    }

    /// Our contender took the place of a silent one.
    pub(crate) fn took_over(&self) {
        self.takeovers.inc();
    }

    pub(crate) fn was_acquired(&self) -> bool {
        self.acquisitions.get() > 0
    }
}

fn at_zero<const N: usize>(label: &'static str, values: [&'static str; N]) -> Family<Label, Counter> {
    let family = Family::default();
    for value in values {
        // Asking for it makes it.
        drop(family.get_or_create(&[(label, value)]));
    }
    family
}

// === impl ReleaseOutcome ===

impl ReleaseOutcome {
    pub(crate) const ALL: [Self; 2] = [Self::Confirmed, Self::Abandoned];

    /// Its label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Abandoned => "abandoned",
        }
    }
}

// === impl StopSignal ===

impl StopSignal {
    pub(crate) const ALL: [Self; 3] = [Self::Term, Self::Kill, Self::Stop];

    /// Its label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Term => "SIGTERM",
            Self::Kill => "SIGKILL",
            Self::Stop => "SIGSTOP",
        }
    }
}

// === impl LockNow ===

impl Collector for LockNow {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let now = self.0.now();
        let mut gauge = |name, help, unit: Option<&Unit>, value: Option<f64>| {
            let metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            match value {
                Some(value) => ConstGauge::new(value).encode(metric),
                None => Ok(()),
            }
        };
        gauge(
            "held",
            "Whether the lock is held",
            None,
            Some(f64::from(now.is_held())),
        )?;
        gauge(
            "max_holders",
            "How many may hold the lock together with this one; +Inf for a reader",
            None,
            Some(self.0.max_holders().map_or(f64::INFINITY, f64::from)),
        )?;
        gauge(
            "queue_position",
            "How many are before this contender in the queue; absent while unknown",
            None,
            now.position.map(|position| position as f64),
        )?;
        gauge(
            "lease_remaining",
            "Time until the application is killed unless a renewal comes first; 0 while the lock is not held",
            Some(&Unit::Seconds),
            Some(now.remaining_millis.unwrap_or(0) as f64 / 1_000.0),
        )?;
        gauge(
            "stop_grace",
            "Time between SIGTERM and the kill when the lock is about to be lost",
            Some(&Unit::Seconds),
            Some(self.0.stop_grace().as_secs_f64()),
        )?;
        gauge(
            "session_timeout",
            "How long the servers keep the session of a silent keeper",
            Some(&Unit::Seconds),
            Some(self.0.timing().session_timeout.as_secs_f64()),
        )?;
        gauge(
            "renewal_interval",
            "Time between two renewals",
            Some(&Unit::Seconds),
            Some(self.0.timing().interval().as_secs_f64()),
        )?;
        gauge(
            "patience",
            "How long the servers may be silent, from when a renewal is due, until the application gets SIGTERM",
            Some(&Unit::Seconds),
            Some(self.0.patience().as_secs_f64()),
        )?;
        gauge(
            "kept_for_survivors",
            "1 while the lock is kept because something has outlived its deadline",
            None,
            Some(f64::from(
                now.survivors.is_some_and(|survivors| !survivors.given_up),
            )),
        )?;
        // A whole number of 64 bits, which a float would round.
        let token = encoder.encode_descriptor(
            "fencing_token",
            "The fencing token while the lock is held, else 0",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(now.fencing_token.map_or(0, |token| token.0)).encode(token)?;
        let mut states = encoder.encode_descriptor(
            "state",
            "1 for the state in which our place in the queue is",
            None,
            MetricType::Gauge,
        )?;
        for state in LockState::ALL {
            let label: Label = [("state", state.name())];
            ConstGauge::new(i64::from(state == now.state)).encode(states.encode_family(&label)?)?;
        }
        let in_force = self.0.containment();
        let mut containments = encoder.encode_descriptor(
            "containment",
            "1 for what holds the application together; none before its guard has said so",
            None,
            MetricType::Gauge,
        )?;
        for containment in Containment::ALL {
            let label: Label = [("by", containment.name())];
            let is_in_force = i64::from(in_force == Some(containment));
            ConstGauge::new(is_in_force).encode(containments.encode_family(&label)?)?;
        }
        Ok(())
    }
}
