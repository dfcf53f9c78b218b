//! The state of a lock as the operator sees it. Only the operator writes it, at most once a second.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::condition::{ConditionType, Reason};
use super::history::{HISTORY_KEPT, PastHolder};
use crate::duration::ApiDuration;

/// How many holders the status shows; the API server refuses more.
pub const HOLDERS_SHOWN: usize = 1_000;

/// How many waiting contenders the status shows; the API server refuses more.
pub const QUEUE_SHOWN: usize = 10;

/// The state of the lock as the operator sees it; up to a second old, and older while `EnsembleReachable` is not
/// `True`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct DistributedLockStatus {
    /// The holders of the lock, by fencing token: none, one, several readers, or up to `maxHolders`. At most 1000 are
    /// shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = HOLDERS_SHOWN))]
    pub holders: Vec<Holder>,

    /// How many contenders are in the queue and do not hold the lock: a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub waiting: Option<i32>,

    /// The first ten contenders that wait, the next one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = QUEUE_SHOWN))]
    pub queue: Vec<QueuedContender>,

    /// The ensemble that the lock is in. The operator writes it here before it creates nodes of the lock there. It
    /// changes only when no pod of the lock is left that was created for another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<EnsembleStatus>,

    /// How long the application of the (first) holder has between SIGTERM and SIGKILL, as its pod reports: a duration.
    /// The `stopGrace` that this pod was created with.
    #[serde(
        default,
        deserialize_with = "readable",
        skip_serializing_if = "Option::is_none"
    )]
    pub stop_budget: Option<ApiDuration>,

    /// The last handoff of a rollout, until a pod of that revision has held the lock for ten minutes. Missing if there
    /// is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,

    /// The last contender that the operator removed because its node was out of service. Missing if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced: Option<Fenced>,

    /// The last former holders, the last one first: at most 32. A hold that was shorter than a second may be missing,
    /// and so may one that began and ended while no operator followed the queue.
    #[serde(
        default,
        deserialize_with = "readable_history",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = HISTORY_KEPT))]
    pub history: Vec<PastHolder>,

    /// `metadata.generation` of the settings that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// `Ready`, `Held` and `EnsembleReachable`, each with a reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]), length(max = 8))]
    pub conditions: Vec<Condition>,
}

impl Serialize for DistributedLockStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// A status that cannot be read counts as an empty one. Users with a right to one status can write what its schema takes
/// and no field does, such as `soon` for a duration; that must not make the list of all locks unreadable.
impl<'de> Deserialize<'de> for DistributedLockStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = serde_json::Value::deserialize(deserializer)?;
        Ok(Self::deserialize(written).unwrap_or_default())
    }
}

/// A duration; `None` if it is not one: earlier operators wrote whatever a pod said.
fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ApiDuration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// No history if it cannot be read: a word in it must not hide the rest of the status.
fn readable_history<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PastHolder>, D::Error> {
    let written = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(written).unwrap_or_default())
}

impl DistributedLockStatus {
    /// Why the lock waits for an agreement about its ensemble; `None` if it does not.
    pub fn dispute(&self) -> Option<&str> {
        let ready = self.condition(ConditionType::Ready)?;
        (ready.reason == Reason::EnsembleChanged.as_str()).then_some(&ready.message)
    }

    /// The condition of this type, if there is one.
    pub fn condition(&self, kind: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|one| one.type_ == kind.as_str())
    }
}

/// The ensemble that the lock was provisioned in.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleStatus {
    /// Its ID, a UUID: the content of the node `ensemble-id` below the operator's root there.
    #[schemars(length(max = 64))]
    pub id: String,
}

/// A handoff of a rollout whose outcome is not certain yet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// The revision that should get the lock: `pod-template-hash` or `controller-revision-hash`.
    #[schemars(length(max = 64))]
    pub revision: String,

    /// Name of the pod that should hold next.
    #[schemars(length(max = 253))]
    pub pod: String,

    /// UID of that pod: a later pod with the same name has another one.
    #[schemars(length(max = 64))]
    pub uid: String,

    /// How often the application's container had ended in that pod before: a count.
    #[schemars(range(min = 0))]
    pub ends: i32,

    /// Whether that container ended under the lock, and the lock went back to another revision. Then the operator
    /// does not hand the lock over to this revision by itself.
    pub has_failed: bool,
}

/// A holder of a lock.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Name of the pod; for a client outside the cluster, the name in its data, otherwise its contender's name.
    pub pod: String,

    /// UID of the pod. Missing for a client outside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,

    /// Node of the pod. Missing for a client outside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,

    /// Name of its node below the lock root in ZooKeeper.
    pub contender: String,

    /// The number that a resource can check: it only grows, over all locks of the ensemble.
    #[schemars(range(min = 0))]
    pub fencing_token: i64,

    /// When it got the lock, by the clock of its node. Only for people: no decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,

    /// Revision of its workload: `pod-template-hash` or `controller-revision-hash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,

    /// How its application is guarded: `wrap` or `signal`. Missing for a client outside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub guard: Option<String>,

    /// How long it may be silent before a next pod with a lease duration takes its place, as its pod reports: a duration.
    /// The lease duration in force for this pod, with `auto` resolved. Missing if only its session decides.
    #[serde(
        default,
        deserialize_with = "readable",
        skip_serializing_if = "Option::is_none"
    )]
    pub lease_duration: Option<ApiDuration>,

    /// The holder whose place it took, because that one was silent for longer than its `leaseDuration`. Missing if there
    /// was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<TakenFrom>,

    /// What of its application outlives SIGKILL, as its pod reports: the pod keeps the lock until it has gone. Missing
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<Survivors>,
}

/// Processes that outlive SIGKILL.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Survivors {
    /// How many there are. Missing if not all of them could be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub processes: Option<i64>,

    /// The process id of one of them, as its guard sees it. Missing if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pid: Option<i64>,
}

impl fmt::Display for Survivors {
    /// In words, with the process that is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.processes {
            Some(1) => f.write_str("1 process of its application has outlived SIGKILL")?,
            Some(count) => write!(f, "{count} processes of its application have outlived SIGKILL")?,
            None => f.write_str("something of its application has outlived its deadline")?,
        }
        match self.pid {
            Some(pid) => write!(f, " (process {pid})"),
            None => Ok(()),
        }
    }
}

/// A holder that was silent for longer than its `leaseDuration`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TakenFrom {
    /// Name of its pod; otherwise its contender's name.
    #[schemars(length(max = 253))]
    pub pod: String,

    /// Name that its node below the lock root in ZooKeeper had.
    #[schemars(length(max = 253))]
    pub contender: String,

    /// How long it had been silent: a duration.
    pub silence: ApiDuration,
}

/// A contender that the operator removed because its node was out of service.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Fenced {
    /// Name of the pod whose contender it was.
    #[schemars(length(max = 253))]
    pub pod: String,

    /// Name of the cluster's node that is out of service.
    #[schemars(length(max = 253))]
    pub node: String,

    /// Name that its node below the lock root in ZooKeeper had.
    pub contender: String,

    /// When it was removed, by the clock of the operator. Only for people: no decision depends on it.
    pub time: Time,
}

/// A contender that waits for a lock.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QueuedContender {
    /// Name of the pod; for a client outside the cluster, the name in its data, otherwise its contender's name.
    pub pod: String,

    /// UID of the pod. Missing for a client outside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,

    /// Node of the pod. Missing for a client outside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,

    /// Name of its node below the lock root in ZooKeeper.
    pub contender: String,

    /// Revision of its workload: `pod-template-hash` or `controller-revision-hash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,

    /// How its application will be guarded: `wrap` or `signal`. Missing for a client outside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub guard: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DistributedLock;

    #[test]
    fn a_status_that_the_schema_takes_and_nobody_can_read_hides_no_lock() {
        let lock = |silence: &str, since: &str| {
            let holder = serde_json::json!({
                "pod": "a", "contender": "c", "fencingToken": 1, "since": since,
                "takenFrom": {"pod": "b", "contender": "d", "silence": silence},
            });
            let lock = serde_json::json!({
                "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": "l"}, "spec": {},
                "status": {"holders": [holder], "waiting": 2},
            });
            let lock: DistributedLock = serde_json::from_value(lock).unwrap();
            lock.status.unwrap()
        };
        let sound = lock("8612ms", "2026-01-01T00:00:00Z");
        assert_eq!((sound.holders.len(), sound.waiting), (1, Some(2)));
        for (silence, since) in [
            ("x", "2026-01-01T00:00:00Z"),
            ("8612ms", "2026-01-01T00:00:00+99:99"),
        ] {
            assert_eq!(lock(silence, since), DistributedLockStatus::default());
        }
        let written = serde_json::to_value(&sound).unwrap();
        assert_eq!(written["holders"][0]["takenFrom"]["silence"], "8612ms");
        assert_eq!(
            serde_json::from_value::<DistributedLockStatus>(written).unwrap(),
            sound
        );
    }
}
