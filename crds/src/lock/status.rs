//! What the operator sees of a lock. Written by it alone, at most once a second.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::ApiDuration;

/// How many of those who wait the status shows.
pub const QUEUE_SHOWN: usize = 10;

/// What the operator sees of the lock; up to a second old, and older while `EnsembleReachable` is not `True`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DistributedLockStatus {
    /// Who holds the lock, by fencing token: nobody, one, or several readers or up to `maxHolders`. At most 1000
    /// are shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub holders: Vec<Holder>,

    /// How many are in the queue and do not hold the lock: a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub waiting: Option<i32>,

    /// The first ten of those who wait, the next one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = QUEUE_SHOWN))]
    pub queue: Vec<QueuedContender>,

    /// How long a holder can be without any answer of the ensemble before its application is stopped, by the
    /// settings of this object: a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_budget: Option<ApiDuration>,

    /// `metadata.generation` of the settings that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// `Ready`, `Held` and `EnsembleReachable`, each with a reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]), length(max = 8))]
    pub conditions: Vec<Condition>,
}

/// Who holds a lock.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Name of the pod; of a client outside the cluster, what it says of itself, else its contender's name.
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

    /// When it got the lock, by the clock of its node. For people only: nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,

    /// Revision of its workload: `pod-template-hash` or `controller-revision-hash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Who waits for a lock.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QueuedContender {
    /// Name of the pod; of a client outside the cluster, what it says of itself, else its contender's name.
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
}
