//! What the replica that leads exports of each lock, from its status: also of a lock that no pod is left to tell of.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::{self, Store};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::{ConditionType, LockMode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::metrics::OfLock;

/// Whether this replica leads: only one exports them, so that no lock is counted twice.
pub(crate) type IsLeading = Box<dyn Fn() -> bool + Send + Sync>;

/// Of how many locks it is exported by default: some 2 MB of a page. Names of 63 and 253 characters would make five times
/// that.
pub(crate) const DEFAULT_LIMIT: u32 = 2_000;

/// The states of all locks, read at each scrape.
pub(crate) struct LockStates {
    locks: Store<DistributedLock>,
    is_leading: IsLeading,
    /// Of how many locks at most; of the oldest ones.
    limit: usize,
}

/// A lock, for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Info {
    namespace: String,
    lock: String,
    mode: &'static str,
}

/// What is exported of a lock.
#[derive(Debug, PartialEq)]
struct State {
    labels: OfLock,
    mode: &'static str,
    holders: usize,
    waiting: Option<i32>,
    is_ready: bool,
    /// For how long nobody has held it; 0 while it is held, and none while that is not known.
    unheld_seconds: Option<i64>,
}

impl LockStates {
    pub(crate) fn new(locks: Store<DistributedLock>, is_leading: IsLeading, limit: u32) -> Self {
        Self {
            locks,
            is_leading,
            limit: limit.try_into().unwrap_or(usize::MAX),
        }
    }
}

impl fmt::Debug for LockStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockStates").finish_non_exhaustive()
    }
}

impl Collector for LockStates {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let locks = if (self.is_leading)() && self.limit > 0 {
            self.locks.state()
        } else {
            Vec::new()
        };
        encode(encoder, locks, self.limit, Timestamp::now())
    }
}

/// Registers these metrics without any lock: a test compares their names with the documentation.
pub fn register_none(registry: &mut Registry) {
    let (store, _) = reflector::store();
    registry.register_collector(Box::new(LockStates::new(store, Box::new(|| true), 0)));
}

fn encode(
    mut encoder: DescriptorEncoder<'_>,
    mut locks: Vec<Arc<DistributedLock>>,
    limit: usize,
    now: Timestamp,
) -> fmt::Result {
    let without = locks.len().saturating_sub(limit);
    locks.sort_unstable_by(|one, other| age(one).cmp(&age(other)));
    let states: Vec<_> = locks.iter().take(limit).map(|lock| state(lock, now)).collect();
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&State) -> Option<i64>| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for state in &states {
            if let Some(value) = value(state) {
                ConstGauge::new(value).encode(family.encode_family(&state.labels)?)?;
            }
        }
        Ok(())
    };
    gauge("lockkeeper_lock_holders", "How many hold the lock", &|state| {
        i64::try_from(state.holders).ok()
    })?;
    gauge(
        "lockkeeper_lock_waiting",
        "How many wait for the lock",
        &|state| state.waiting.map(i64::from),
    )?;
    gauge(
        "lockkeeper_lock_ready",
        "Whether the lock can be taken, and is followed",
        &|state| Some(state.is_ready.into()),
    )?;
    gauge(
        "lockkeeper_lock_unheld_seconds",
        "For how long nobody has held the lock; 0 while it is held",
        &|state| state.unheld_seconds,
    )?;
    let help = "The lock, and its kind";
    let mut infos = encoder.encode_descriptor("lockkeeper_lock_info", help, None, MetricType::Gauge)?;
    for state in &states {
        let OfLock { namespace, lock } = state.labels.clone();
        let mode = state.mode;
        let info = Info {
            namespace,
            lock,
            mode,
        };
        ConstGauge::new(1_i64).encode(infos.encode_family(&info)?)?;
    }
    let name = "lockkeeper_operator_locks_without_metrics";
    let help = "Locks of which no series are exported, since there are too many";
    let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(i64::try_from(without).unwrap_or(i64::MAX)).encode(family)
}

/// The oldest first, so that a new lock takes no other one's series away.
fn age(lock: &DistributedLock) -> (Option<&Time>, Option<&str>, Option<&str>) {
    let metadata = &lock.metadata;
    (
        metadata.creation_timestamp.as_ref(),
        metadata.namespace.as_deref(),
        metadata.name.as_deref(),
    )
}

fn state(lock: &DistributedLock, now: Timestamp) -> State {
    let status = lock.status.as_ref();
    let condition = |kind| status.and_then(|status| status.condition(kind));
    let unheld_seconds = condition(ConditionType::Held).and_then(|held| match held.status.as_str() {
        "True" => Some(0),
        "False" => Some((now.as_second() - held.last_transition_time.0.as_second()).max(0)),
        _ => None,
    });
    State {
        labels: OfLock {
            namespace: lock.namespace().unwrap_or_default(),
            lock: lock.name_any(),
        },
        mode: match (lock.spec.mode, lock.spec.max_holders) {
            (LockMode::ReadWrite, _) => "ReadWrite",
            (LockMode::Exclusive, 1) => "Exclusive",
            (LockMode::Exclusive, _) => "Semaphore",
        },
        holders: status.map_or(0, |status| status.holders.len()),
        waiting: status.and_then(|status| status.waiting),
        is_ready: condition(ConditionType::Ready).is_some_and(|ready| ready.status == "True"),
        unheld_seconds,
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    fn lock(name: &str, created: u32, status: serde_json::Value) -> DistributedLock {
        serde_json::from_value(json!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock", "spec": {"maxHolders": created},
            "metadata": {
                "namespace": "shop", "name": name, "creationTimestamp": format!("2026-01-0{created}T00:00:00Z"),
            },
            "status": status,
        }))
        .unwrap()
    }

    fn page(locks: Vec<DistributedLock>, is_leading: bool, limit: u32) -> String {
        let (store, mut writer) = reflector::store();
        for lock in locks {
            writer.apply_watcher_event(&Event::Apply(lock));
        }
        let mut registry = Registry::default();
        let states = LockStates::new(store, Box::new(move || is_leading), limit);
        registry.register_collector(Box::new(states));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        page
    }

    fn held(status: &str) -> serde_json::Value {
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "Any", "message": "any",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let holders: Vec<_> = (status == "True")
            .then(|| json!({"pod": "a", "contender": "c", "fencingToken": 7}))
            .into_iter()
            .collect();
        json!({
            "holders": holders, "waiting": 2,
            "conditions": [condition("Held", status), condition("Ready", if status == "Unknown" { status } else { "True" })],
        })
    }

    #[test]
    fn the_leader_tells_of_each_lock_who_holds_who_waits_and_since_when_nobody_holds() {
        let locks = || {
            vec![
                lock("free", 1, held("False")),
                lock("held", 2, held("True")),
                lock("unknown", 3, held("Unknown")),
                lock("new", 4, json!(null)),
            ]
        };
        let page_of_leader = page(locks(), true, 10);
        let series = |of: &str, name: &str| {
            let start = format!("lockkeeper_lock_{of}{{namespace=\"shop\",lock=\"{name}\"}} ");
            let mut lines = page_of_leader.lines();
            let found = lines.find_map(|line| line.strip_prefix(&start));
            found.map(|value| value.parse::<i64>().unwrap())
        };
        let all = |of: &str| ["free", "held", "unknown", "new"].map(|name| series(of, name));
        assert_eq!(all("holders"), [Some(0), Some(1), Some(0), Some(0)]);
        assert_eq!(all("waiting"), [Some(2), Some(2), Some(2), None]);
        assert_eq!(all("ready"), [Some(1), Some(1), Some(0), Some(0)]);
        assert!(series("unheld_seconds", "free") > Some(1_000_000));
        assert_eq!(all("unheld_seconds")[1..], [Some(0), None, None]);
        let infos = [("free", "Exclusive"), ("held", "Semaphore")];
        for (name, mode) in infos {
            let info =
                format!("lockkeeper_lock_info{{namespace=\"shop\",lock=\"{name}\",mode=\"{mode}\"}} 1\n");
            assert!(page_of_leader.contains(&info), "{page_of_leader}");
        }
        for nothing in [page(locks(), false, 10), page(locks(), true, 0)] {
            assert!(!nothing.contains("shop"), "{nothing}");
        }
    }

    #[test]
    fn beyond_the_limit_the_oldest_locks_have_series_and_the_others_are_counted() {
        let locks = vec![
            lock("young", 3, json!(null)),
            lock("old", 1, json!(null)),
            lock("middle", 2, json!(null)),
        ];
        let page = page(locks, true, 2);
        assert!(
            page.contains("lock=\"old\"") && page.contains("lock=\"middle\""),
            "{page}"
        );
        assert!(!page.contains("lock=\"young\""), "{page}");
        assert!(
            page.contains("lockkeeper_operator_locks_without_metrics 1\n"),
            "{page}"
        );
    }
}
