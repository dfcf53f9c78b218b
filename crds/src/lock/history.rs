//! The former holders of a lock, as its status keeps them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::ApiDuration;

/// How many former holders the status keeps; the API server refuses more.
pub const HISTORY_KEPT: usize = 32;

/// Longest name in it, in characters; the API server refuses longer ones. The longest names in Kubernetes have 253, and what
/// contenders say is cut to 264 with a mark behind it.
const LONGEST_NAME: usize = 265;

/// A former holder of a lock.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PastHolder {
    /// Name of its pod; for a client outside the cluster, the name in its data, otherwise its contender's name.
    #[schemars(length(max = LONGEST_NAME))]
    pub pod: String,

    /// Node of the pod. Missing for a client outside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_NAME))]
    pub node: Option<String>,

    /// Name that its node below the lock root in ZooKeeper had.
    #[schemars(length(max = LONGEST_NAME))]
    pub contender: String,

    /// The fencing token under which it held.
    #[schemars(range(min = 0))]
    pub fencing_token: i64,

    /// When it got the lock, by the clock of its node. Only for people: no decision depends on it. Missing if it did not
    /// say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,

    /// When the operator saw that it no longer held, by the clock of the operator. Only for people: no decision depends
    /// on it.
    pub until: Time,

    /// How it ended: `Released` (by itself), `HandedOver` (released because it was asked to), `TakenOver` (it was silent
    /// for longer than its lease), `NodeOutOfService` (the operator removed it, because its node is out of service),
    /// `Lost` (its session expired, or its node in ZooKeeper was deleted) or `Unknown` (it keeps no record of releases,
    /// or there is none left).
    #[schemars(with = "String", length(max = 32))]
    pub ended: HoldEnd,

    /// The pod that took its place; otherwise that contender's name. Missing unless it was `TakenOver`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_NAME))]
    pub taken_by: Option<String>,

    /// How long it had been silent then: a duration. Missing unless it was `TakenOver`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<ApiDuration>,
}

/// How a holder ended.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(from = "String", into = "&'static str")]
pub enum HoldEnd {
    /// It released the lock by itself.
    Released,
    /// It released the lock because it was asked to step down.
    HandedOver,
    /// It was silent for longer than its lease, and the next one took its place.
    TakenOver,
    /// The operator removed it, because its node is out of service.
    NodeOutOfService,
    /// Its session expired, or its node in ZooKeeper was deleted.
    Lost,
    /// Nothing is recorded of its end. Also what a later version of the operator may write.
    Unknown,
}

impl HoldEnd {
    const ALL: [Self; 5] = [
        Self::Released,
        Self::HandedOver,
        Self::TakenOver,
        Self::NodeOutOfService,
        Self::Lost,
    ];

    /// The word in a status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "Released",
            Self::HandedOver => "HandedOver",
            Self::TakenOver => "TakenOver",
            Self::NodeOutOfService => "NodeOutOfService",
            Self::Lost => "Lost",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<String> for HoldEnd {
    fn from(word: String) -> Self {
        let known = Self::ALL.into_iter().find(|end| end.as_str() == word);
        known.unwrap_or(Self::Unknown)
    }
}

impl From<HoldEnd> for &'static str {
    fn from(end: HoldEnd) -> Self {
        end.as_str()
    }
}

impl fmt::Display for HoldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_reads_back_as_it_was_written_and_a_word_of_a_later_version_is_unknown() {
        for end in HoldEnd::ALL.into_iter().chain([HoldEnd::Unknown]) {
            let written = serde_json::to_string(&end).unwrap();
            assert_eq!(serde_json::from_str::<HoldEnd>(&written).unwrap(), end);
        }
        assert_eq!(
            serde_json::from_str::<HoldEnd>("\"Frozen\"").unwrap(),
            HoldEnd::Unknown
        );
    }
}
