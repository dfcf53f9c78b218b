//! A hold of the lock: who held, from when until when, and how it ended. Pure.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::contender::{ContenderData, Pod, TookOver, is_name, is_word, now};
use crate::token::FencingToken;

/// How many holds the control node remembers. Each release writes it whole: with pods they are less than 2.5 KB, and with
/// the longest names 15 KB. With sixteen, a handoff between two contenders took 3 % longer (`make bench-handoffs`).
pub const HOLDS_KEPT: usize = 8;

/// The pod of a holder, without what tells it from a later pod with its name: the contender does that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderPod {
    /// Namespace in the cluster, a DNS subdomain.
    pub namespace: String,
    /// Name in the namespace, a DNS subdomain.
    pub name: String,
    /// Name of the node that the pod ran on.
    pub node: String,
}

/// A time for which a contender has held the lock, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Name of the contender.
    pub contender: String,
    /// The token under which it held.
    pub token: FencingToken,
    /// The pod that it stood for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<HolderPod>,
    /// The machine of a contender without a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When it got the lock: RFC 3339, on the clock of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When it released, on the same clock; or else when another contender saw it go, on that one's clock. RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// How it ended; `None` if nobody has written that down, as while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<HoldEnd>,
    /// Who took its place: the pod as `namespace/name`, or the machine, or the contender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_by: Option<String>,
    /// For how long it had been silent then, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_millis: Option<u64>,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "&'static str")]
pub enum HoldEnd {
    /// The holder released the lock by itself.
    Released,
    /// It released the lock because it was asked to step down.
    HandedOver,
    /// It was silent for longer than its lease, and another contender took its place.
    TakenOver,
    /// Its session expired, or its node was deleted.
    Lost,
    /// It is gone, and no record tells how. Also what a later version may write.
    Unknown,
}

impl HoldEnd {
    const KNOWN: [Self; 4] = [Self::Released, Self::HandedOver, Self::TakenOver, Self::Lost];

    /// The word in the control node, and for users.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "Released",
            Self::HandedOver => "HandedOver",
            Self::TakenOver => "TakenOver",
            Self::Lost => "Lost",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<String> for HoldEnd {
    fn from(word: String) -> Self {
        let known = Self::KNOWN.into_iter().find(|end| end.as_str() == word);
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

impl Hold {
    /// One that lasts.
    pub(super) fn new(contender: String, token: FencingToken, pod: Option<&Pod>, host: Option<&str>) -> Self {
        Self {
            contender,
            token,
            pod: pod.map(|pod| HolderPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                node: pod.node.clone(),
            }),
            host: host.map(str::to_owned),
            since: None,
            until: None,
            ended: None,
            taken_by: None,
            silent_millis: None,
        }
    }

    /// That of a contender which says so; `None` if it does not, or if its name is longer than what is written down.
    pub(crate) fn said(contender: &str, token: FencingToken, said: &ContenderData) -> Option<Self> {
        let is_one = said.is_held() && TookOver::can_name(contender);
        is_one.then(|| Self {
            since: said.since.clone(),
            ..Self::new(
                contender.to_owned(),
                token,
                said.pod.as_ref(),
                said.host.as_deref(),
            )
        })
    }

    /// The same, which we see end now.
    pub(crate) fn seen_to_end(self) -> Self {
        Self {
            until: Some(now()),
            ..self
        }
    }

    /// Who held, for people: the pod, or else the machine, or else the contender.
    pub fn who(&self) -> String {
        match (&self.pod, &self.host) {
            (Some(pod), _) => format!("{}/{}", pod.namespace, pod.name),
            (None, Some(host)) => host.clone(),
            (None, None) => self.contender.clone(),
        }
    }

    /// The same with nothing that is not plausible; `None` if it names no contender. Any client can write here.
    fn plausible(self) -> Option<Self> {
        let is_one = TookOver::can_name(&self.contender) && self.token.0 >= 0;
        let is_pod = |pod: &HolderPod| {
            [&pod.namespace, &pod.name, &pod.node]
                .into_iter()
                .all(|name| is_name(name))
        };
        is_one.then(|| Self {
            pod: self.pod.filter(is_pod),
            host: self.host.filter(|host| is_word(host)),
            since: self.since.filter(|since| is_word(since)),
            until: self.until.filter(|until| is_word(until)),
            taken_by: self.taken_by.filter(|by| is_who(by)),
            ..self
        })
    }
}

/// Longest text that tells who took a place, in bytes.
pub(super) const LONGEST_WHO: usize = 253;

/// Whether this may tell who took a place.
pub(super) fn is_who(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST_WHO && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads the holds of a control node. What is none is left out, and does not make the rest of the document foreign.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Hold>, D::Error> {
    let serde_json::Value::Array(all) = Deserialize::deserialize(deserializer)? else {
        return Ok(Vec::new());
    };
    let holds = all.into_iter().take(HOLDS_KEPT);
    Ok(holds
        .filter_map(|one| serde_json::from_value::<Hold>(one).ok()?.plausible())
        .collect())
}
