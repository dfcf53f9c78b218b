//! What contenders and the control node hold: small JSON documents.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::token::FencingToken;

/// The pod that a contender stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Name of the node.
    pub node: String,
}

/// Who a contender is: for people and for the operator, never for the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The pod; `None` outside Kubernetes.
    pub pod: Option<Pod>,
    /// Revision of the workload that the pod belongs to.
    pub revision: Option<String>,
}

/// Data of a contender. Curator writes an IP address instead, and anybody may write anything.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContenderDocument<'a> {
    v: u32,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a Pod>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
    since: String,
    stop_budget_millis: u64,
}

/// Data of a contender that waits or holds from now on. `stop_budget` is the time that its
/// application may take to stop.
pub fn contender_data(identity: &Identity, is_held: bool, stop_budget: std::time::Duration) -> Vec<u8> {
    let document = ContenderDocument {
        v: 1,
        state: if is_held { "held" } else { "waiting" },
        pod: identity.pod.as_ref(),
        revision: identity.revision.as_deref(),
        since: humantime::format_rfc3339_seconds(wall_clock()).to_string(),
        stop_budget_millis: u64::try_from(stop_budget.as_millis()).unwrap_or(u64::MAX),
    };
    serde_json::to_vec(&document).expect("strings and numbers")
}

/// Time of day, for people only.
fn wall_clock() -> std::time::SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "people read it; nothing is decided by it"
    )]
    std::time::SystemTime::now()
}

/// What the data of some contender say; empty and foreign data say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContenderData {
    /// `held` or `waiting`.
    pub state: String,
    /// The pod.
    pub pod: Option<Pod>,
    /// Revision of its workload.
    pub revision: Option<String>,
    /// RFC 3339, on the clock of its machine: for people only.
    pub since: Option<String>,
    /// Time that its application may take to stop, in milliseconds.
    pub stop_budget_millis: Option<u64>,
}

impl ContenderData {
    /// Reads a contender's data.
    pub fn parse(data: &[u8]) -> Self {
        serde_json::from_slice(data).unwrap_or_default()
    }

    /// Whether the contender says that it holds, which it knows better than anybody.
    pub fn is_held(&self) -> bool {
        self.state == "held"
    }
}

/// A wish that some contenders step down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct YieldRequest {
    /// Identifies the wish in logs.
    pub id: String,
    /// Names of the contenders that are to release and queue again at the end. A contender that
    /// did so has a new name: a request is carried out once.
    pub contenders: Vec<String>,
}

/// A release that was not an accident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanRelease {
    /// Name of the contender.
    pub contender: String,
    /// Its token.
    pub token: FencingToken,
}

/// How many clean releases the control node remembers: more than one, for a semaphore's holders go
/// independently.
const REMEMBERED_RELEASES: usize = 16;

/// Data of the control node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Control {
    /// Version of this format: 1.
    pub v: u32,
    /// Who is to step down.
    #[serde(rename = "yield", skip_serializing_if = "Option::is_none")]
    pub yield_request: Option<YieldRequest>,
    /// The last clean releases, newest first.
    pub last_release: Vec<CleanRelease>,
    /// What others keep here.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Control {
    /// Reads the control node; foreign data count as none, and are replaced by the next release.
    pub fn parse(data: &[u8]) -> Self {
        serde_json::from_slice(data).unwrap_or_default()
    }

    /// The same with one more clean release, as data.
    pub fn with_release(mut self, release: CleanRelease) -> Vec<u8> {
        self.v = 1;
        self.last_release.insert(0, release);
        self.last_release.truncate(REMEMBERED_RELEASES);
        self.to_data()
    }

    /// As data.
    pub fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers")
    }

    /// Whether a contender is asked to step down.
    pub fn asks(&self, contender: &str) -> bool {
        self.yield_request
            .as_ref()
            .is_some_and(|request| request.contenders.iter().any(|name| name == contender))
    }

    /// Whether a contender released cleanly, and so recently that it is remembered.
    pub fn released(&self, contender: &str) -> bool {
        self.last_release
            .iter()
            .any(|release| release.contender == contender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_contender_reads_back_what_it_wrote() {
        let pod = Pod {
            namespace: "shop".into(),
            name: "report-1".into(),
            uid: "u".into(),
            node: "n1".into(),
        };
        let identity = Identity {
            pod: Some(pod.clone()),
            revision: Some("6c9d".into()),
        };
        let data = ContenderData::parse(&contender_data(&identity, true, Duration::from_secs(3)));
        assert!(data.is_held());
        assert_eq!(data.pod, Some(pod));
        assert_eq!(data.revision.as_deref(), Some("6c9d"));
        assert_eq!(data.stop_budget_millis, Some(3_000));
        let since = data.since.unwrap();
        assert!(humantime::parse_rfc3339(&since).is_ok(), "{since}");
    }

    #[test]
    fn empty_and_foreign_data_are_not_held() {
        for foreign in [
            &b""[..],
            b"10.0.0.7",
            b"null",
            b"[]",
            b"{\"state\":7}",
            b"\xff\xfe",
            b"{\"state\":\"other\"}",
        ] {
            assert!(!ContenderData::parse(foreign).is_held());
        }
    }

    #[test]
    fn a_release_keeps_the_yield_request_and_what_others_wrote() {
        let before = Control::parse(br#"{"v":1,"yield":{"id":"7","contenders":["a"]},"note":"x"}"#);
        assert!(before.asks("a") && !before.asks("b"));
        let after = Control::parse(&before.with_release(CleanRelease {
            contender: "b".into(),
            token: FencingToken(9),
        }));
        assert!(after.asks("a"));
        assert!(after.released("b") && !after.released("a"));
        assert_eq!(after.other.get("note"), Some(&Value::from("x")));
    }

    #[test]
    fn only_the_last_releases_are_remembered_the_newest_first() {
        let mut control = Control::default();
        for i in 0..40 {
            let release = CleanRelease {
                contender: format!("c{i}"),
                token: FencingToken(i),
            };
            control = Control::parse(&control.with_release(release));
        }
        assert_eq!(control.last_release.len(), REMEMBERED_RELEASES);
        assert_eq!(control.last_release[0].contender, "c39");
        assert!(!control.released("c0"));
    }
}
