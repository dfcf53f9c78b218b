//! The data of a contender: its description of itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::document::document;
use crate::queue::is_contender;
use crate::timing::LONGEST_LEASE;

/// The pod that a contender stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Namespace in the cluster, a DNS subdomain.
    pub namespace: String,
    /// Name in the namespace, a DNS subdomain; a later pod may have it too.
    pub name: String,
    /// UID, which no other pod has.
    pub uid: String,
    /// Name of the node that the pod runs on.
    pub node: String,
}

/// Identity of a contender, for people and for the operator. The lock does not use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The pod; `None` outside Kubernetes.
    pub pod: Option<Pod>,
    /// The name of the machine, where there is no pod.
    pub host: Option<String>,
    /// Revision of the workload that the pod belongs to.
    pub revision: Option<String>,
}

/// Longest data of a contender that is read, in bytes. Ours have 80 to 300 bytes; its owner may write as much as a
/// server accepts (`jute.maxbuffer`, 1 MB).
pub const LONGEST_CONTENDER_DATA: usize = 4096;

/// Longest time to stop that is believed: more would be no time that an application takes.
const LONGEST_STOP_BUDGET: Duration = Duration::from_secs(24 * 3_600);

/// Longest name of an object in Kubernetes (DNS subdomain, RFC 1123), in bytes.
const LONGEST_NAME: usize = 253;

/// Longest UID, value of a label (the revision is one), and time, in bytes.
const LONGEST_WORD: usize = 64;

impl Pod {
    /// Whether this may be the identity of a pod: names are DNS subdomains, a UID has letters, digits and dashes. Any
    /// client can write here, and the text appears in terminals and events.
    pub(crate) fn is_plausible(&self) -> bool {
        is_name(&self.namespace) && is_name(&self.name) && is_name(&self.node) && is_word(&self.uid)
    }
}

/// Whether this may be the name of an object in Kubernetes.
pub(super) fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(is_part)
}

/// Whether this is short and has only letters, digits and `-`, `_`, `.`, `:`.
pub(super) fn is_word(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    !text.is_empty() && text.len() <= LONGEST_WORD && text.bytes().all(is_part)
}

/// The contender whose place another one has taken, because it did not renew for longer than its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TookOver {
    /// Its name below the lock root.
    pub contender: String,
    /// The pod that it stood for, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// For how long it had been silent, in milliseconds.
    pub silent_millis: u64,
}

impl TookOver {
    /// Whose place it was, for people: the pod and its node, or else the contender.
    pub fn whose(&self) -> String {
        match &self.pod {
            Some(pod) => format!("{}/{} on {}", pod.namespace, pod.name, pod.node),
            None => self.contender.clone(),
        }
    }

    /// Whether this may be a contender of a queue. Any client can write here.
    pub(crate) fn is_plausible(&self) -> bool {
        Self::can_name(&self.contender) && self.pod.as_ref().is_none_or(Pod::is_plausible)
    }

    /// Whether a contender with this name can be stated here. Other clients choose their names, up to 1 MB.
    pub(crate) fn can_name(contender: &str) -> bool {
        is_contender(contender)
            && contender.len() <= LONGEST_NAME
            && contender.bytes().all(|byte| byte.is_ascii_graphic())
    }
}

/// What outlives SIGKILL under a lock, as far as that is known. While it is there, nobody else gets the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Survivors {
    /// How many processes; `None` if not all of them could be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// The process id of one of them, as the process that looks for them sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// What a contender says about itself beside its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whether it holds; otherwise it waits.
    pub is_held: bool,
    /// Since when: the time of day, in RFC 3339.
    pub since: String,
    /// The time that its application may take to stop.
    pub stop_budget: Duration,
    /// L, if it may be replaced when it is silent for that long.
    pub lease: Option<Duration>,
    /// Whose place it has taken.
    pub took_over: Option<TookOver>,
    /// For what it keeps the lock, although the application had to be gone.
    pub survivors: Option<Survivors>,
}

/// The time of day in a contender's data, only for people.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(wall_clock()).to_string()
}

/// Data of a contender. Curator writes an IP address instead, and other clients may write anything.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContenderDocument<'a> {
    v: u32,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a Pod>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
    since: &'a str,
    stop_budget_millis: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_millis: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_over: Option<&'a TookOver>,
    #[serde(skip_serializing_if = "Option::is_none")]
    survivors: Option<Survivors>,
}

/// Data of a contender.
pub fn contender_data(identity: &Identity, said: &Said) -> Vec<u8> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let document = ContenderDocument {
        v: 1,
        state: if said.is_held { "held" } else { "waiting" },
        pod: identity.pod.as_ref(),
        host: identity.host.as_deref(),
        revision: identity.revision.as_deref(),
        since: &said.since,
        stop_budget_millis: millis(said.stop_budget),
        lease_millis: said.lease.map(millis),
        took_over: said.took_over.as_ref(),
        survivors: said.survivors,
    };
    serde_json::to_vec(&document).expect("strings and numbers")
}

/// Time of day, only for people.
fn wall_clock() -> std::time::SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "people read it; no decision depends on it"
    )]
    std::time::SystemTime::now()
}

/// The parsed data of a contender. Empty and foreign data have the default values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContenderData {
    /// `held` or `waiting`.
    pub state: String,
    /// The pod that it stands for, if it names a plausible one.
    pub pod: Option<Pod>,
    /// The machine of a contender without a pod, if it names a plausible one.
    pub host: Option<String>,
    /// Revision of its workload, if it names a plausible one.
    pub revision: Option<String>,
    /// RFC 3339, on the clock of its machine: only for people.
    pub since: Option<String>,
    /// Time that its application may take to stop, in milliseconds.
    pub stop_budget_millis: Option<u64>,
    /// L in milliseconds: the contender behind it may take its place when it does not renew for longer.
    pub lease_millis: Option<u64>,
    /// Whose place it has taken.
    pub took_over: Option<TookOver>,
    /// For what it keeps the lock, although its application had to be gone.
    pub survivors: Option<Survivors>,
}

impl ContenderData {
    /// Reads a contender's data. Data longer than [`LONGEST_CONTENDER_DATA`] count as empty, and so does a pod, a
    /// revision or a time that is not plausible.
    pub fn parse(data: &[u8]) -> Self {
        let mut said: Self = document(data, LONGEST_CONTENDER_DATA).unwrap_or_default();
        said.pod = said.pod.filter(Pod::is_plausible);
        said.host = said.host.filter(|host| is_word(host));
        said.revision = said.revision.filter(|revision| is_word(revision));
        said.since = said.since.filter(|since| is_word(since));
        let is_within = |millis: &u64, most| Duration::from_millis(*millis) <= most;
        said.lease_millis = said
            .lease_millis
            .filter(|millis| *millis > 0 && is_within(millis, LONGEST_LEASE));
        said.stop_budget_millis = said
            .stop_budget_millis
            .filter(|millis| is_within(millis, LONGEST_STOP_BUDGET));
        said.took_over = said.took_over.filter(TookOver::is_plausible);
        if !is_word(&said.state) {
            said.state = String::new();
        }
        said
    }

    /// L, if the contender behind it may take its place when it does not renew for longer.
    pub fn lease(&self) -> Option<Duration> {
        self.lease_millis.map(Duration::from_millis)
    }

    /// Whether the contender reports that it holds. No other source knows it better.
    pub fn is_held(&self) -> bool {
        self.state == "held"
    }
}

#[cfg(test)]
mod tests;
