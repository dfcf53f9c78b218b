//! The metrics of the operator, except those of its webhooks: their names, their labels, and what counts for them.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::lock_key::LockKey;

/// Metrics of the operator. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Reconciliations by how they ended: `ok`, or the reason of an error.
    pub reconciliations: Family<Outcome, Counter>,
    /// How long they took, in seconds.
    pub(crate) duration: Histogram,
    /// Requests that write to the API server, by what they write.
    pub writes: Family<Write, Counter>,
    /// Yield requests, by what asked for them.
    pub handoffs: Family<Cause, Counter>,
    /// Holders that ended without a clean release, by lock.
    pub losses: Family<OfLock, Counter>,
    /// Contenders that were removed since their machines are known to be off, by lock.
    pub fenced: Family<OfLock, Counter>,
    /// Objects that were left out since they are too long to be read, each time that they are.
    pub(crate) objects_too_long: Counter,
    /// 1 while this replica leads.
    pub(crate) leading: Gauge,
    /// 1 while the picture of the queues is fresh.
    pub(crate) connected: Gauge,
    /// Locks in the ensemble.
    pub(crate) locks: Gauge<u64, AtomicU64>,
    /// Contenders in all queues.
    pub(crate) contenders: Gauge<u64, AtomicU64>,
    /// Contenders that would be removed if their nodes were out of service from now on.
    pub(crate) vouched: Gauge<u64, AtomicU64>,
    /// `DistributedLock`s that are not followed, since there are too many.
    pub(crate) locks_left_out: Gauge<u64, AtomicU64>,
}

/// How a reconciliation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Outcome {
    /// `ok`, or one of the closed set of reasons.
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Write {
    /// `status`, `role`, `finalizer`, `secret`, `lock`, `annotation` or `event`.
    pub kind: &'static str,
}

/// What asked for a handoff.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Cause {
    /// `rollout` or `user`.
    pub cause: &'static str,
}

/// Which lock. A series is there from the first count until its object is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfLock {
    pub namespace: String,
    pub lock: String,
}

impl From<&LockKey> for OfLock {
    fn from(key: &LockKey) -> Self {
        Self {
            namespace: key.namespace.to_string(),
            lock: key.name.to_string(),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciliations: Family::default(),
            // 1 ms to 16 s.
            duration: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            writes: Family::default(),
            handoffs: Family::default(),
            losses: Family::default(),
            fenced: Family::default(),
            objects_too_long: Counter::default(),
            leading: Gauge::default(),
            connected: Gauge::default(),
            locks: Gauge::default(),
            contenders: Gauge::default(),
            vouched: Gauge::default(),
            locks_left_out: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("lockkeeper_operator");
        registry.register(
            "reconciliations",
            "Reconciliations by how they ended",
            metrics.reconciliations.clone(),
        );
        registry.register(
            "reconciliation_duration_seconds",
            "How long reconciliations took",
            metrics.duration.clone(),
        );
        registry.register(
            "api_writes",
            "Writes to the API server by what they write",
            metrics.writes.clone(),
        );
        registry.register(
            "handoffs",
            "Requests that a holder steps down",
            metrics.handoffs.clone(),
        );
        registry.register(
            "losses",
            "Holders that ended without a clean release",
            metrics.losses.clone(),
        );
        registry.register(
            "fenced_contenders",
            "Contenders that were removed since their nodes are out of service",
            metrics.fenced.clone(),
        );
        registry.register(
            "objects_too_long",
            "Objects that were left out since they are too long to be read",
            metrics.objects_too_long.clone(),
        );
        registry.register("leading", "Whether this replica leads", metrics.leading.clone());
        registry.register(
            "ensemble_connected",
            "Whether the queues are followed",
            metrics.connected.clone(),
        );
        registry.register("locks", "Lock roots in the ensemble", metrics.locks.clone());
        registry.register(
            "contenders",
            "Contenders in all queues",
            metrics.contenders.clone(),
        );
        registry.register(
            "contenders_on_known_machines",
            "Contenders that are removed once their nodes are out of service",
            metrics.vouched.clone(),
        );
        registry.register(
            "locks_left_out",
            "DistributedLocks that are not followed, since there are too many",
            metrics.locks_left_out.clone(),
        );
        metrics
    }

    pub(crate) fn reconciled(&self, result: &'static str) {
        self.reconciliations.get_or_create(&Outcome { result }).inc();
    }

    pub(crate) fn wrote(&self, kind: &'static str) {
        self.writes.get_or_create(&Write { kind }).inc();
    }
}
