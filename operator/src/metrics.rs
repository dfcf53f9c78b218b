//! The metrics of the operator, except those of its webhooks: their names, their labels, and what counts for them.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// The locks with a series in one of the two.
    counted: Arc<Mutex<HashSet<LockKey>>>,
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
            counted: Arc::default(),
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

    /// So many holders of a lock ended without a clean release.
    pub(crate) fn lost(&self, key: &LockKey, count: u64) {
        let mut counted = self.counted();
        counted.insert(key.clone());
        self.losses.get_or_create(&OfLock::from(key)).inc_by(count);
    }

    /// A contender for a lock was removed.
    pub(crate) fn fenced_one(&self, key: &LockKey) {
        let mut counted = self.counted();
        counted.insert(key.clone());
        self.fenced.get_or_create(&OfLock::from(key)).inc();
    }

    /// Ends the series of a lock, whose object is gone. Tenants decide how many locks come and go.
    pub(crate) fn forget(&self, key: &LockKey) {
        let mut counted = self.counted();
        if counted.remove(key) {
            self.end(key);
        }
    }

    /// Ends the series of all locks but these.
    pub(crate) fn keep(&self, is_there: impl Fn(&LockKey) -> bool) {
        self.counted().retain(|key| {
            let stays = is_there(key);
            if !stays {
                self.end(key);
            }
            stays
        });
    }

    fn end(&self, key: &LockKey) {
        let of_lock = OfLock::from(key);
        self.losses.remove(&of_lock);
        self.fenced.remove(&of_lock);
    }

    /// Who changes it holds it until the series are changed, too. A thread that panicked has left it whole.
    fn counted(&self) -> MutexGuard<'_, HashSet<LockKey>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_series_of_a_lock_end_with_its_object_and_those_of_others_go_on() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let page = || {
            let mut page = String::new();
            encode(&mut page, &registry).unwrap();
            page
        };
        let key = |name: &str| LockKey::new("shop", name);
        for name in ["one", "two", "three"] {
            metrics.lost(&key(name), 2);
            metrics.fenced_one(&key(name));
        }
        metrics.forget(&key("one"));
        metrics.forget(&key("never counted"));
        metrics.keep(|key| &*key.name == "two");
        let page = page();
        assert!(
            page.contains("lockkeeper_operator_losses_total{namespace=\"shop\",lock=\"two\"} 2\n"),
            "{page}"
        );
        assert_eq!(page.matches("lock=\"").count(), 2, "{page}");
    }
}
