//! What contenders and the control node hold: small JSON documents.

mod holders;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::holders::Holder;
pub(crate) use self::holders::{Claimant, Debts};
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

/// Longest data of a contender that is read, in bytes. Ours have 80 to 300; its owner may write as much as a server
/// takes (`jute.maxbuffer`, 1 MB).
pub const LONGEST_CONTENDER_DATA: usize = 4096;

/// Longest control node that is read, in bytes: a wish that a thousand contenders step down, and sixteen releases. What
/// others keep there takes up to a hundred times as much memory as it has bytes, and a keeper has 64 MiB.
pub const LONGEST_CONTROL_DATA: usize = 128 << 10;

/// Longest name of an object in Kubernetes (DNS subdomain, RFC 1123), in bytes.
const LONGEST_NAME: usize = 253;

/// Longest UID, value of a label (the revision is one), and time, in bytes.
const LONGEST_WORD: usize = 64;

impl Pod {
    /// Whether this may be what a pod is called: names are DNS subdomains, a UID has letters, digits and dashes. What
    /// else somebody writes there would be shown on terminals and in events.
    pub fn is_plausible(&self) -> bool {
        let is_name = |text: &str| {
            let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
            !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(is_part)
        };
        is_name(&self.namespace) && is_name(&self.name) && is_name(&self.node) && is_word(&self.uid)
    }
}

/// Whether this is short and has letters, digits and `-`, `_`, `.`, `:` alone.
fn is_word(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    !text.is_empty() && text.len() <= LONGEST_WORD && text.bytes().all(is_part)
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

/// Reads a document; `None` for data that are longer, or something else. (An array is something else, though serde
/// would take it for the fields in their order.)
pub(crate) fn document<T: serde::de::DeserializeOwned>(data: &[u8], longest: usize) -> Option<T> {
    let is_it = data.len() <= longest && data.trim_ascii_start().first() == Some(&b'{');
    is_it.then(|| serde_json::from_slice(data).ok()).flatten()
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Reads a contender's data. What is longer than [`LONGEST_CONTENDER_DATA`] says nothing; and of a pod, a revision
    /// or a time nothing is believed that could not be one.
    pub fn parse(data: &[u8]) -> Self {
        let mut said: Self = document(data, LONGEST_CONTENDER_DATA).unwrap_or_default();
        said.pod = said.pod.filter(Pod::is_plausible);
        said.revision = said.revision.filter(|revision| is_word(revision));
        said.since = said.since.filter(|since| is_word(since));
        if !is_word(&said.state) {
            said.state = String::new();
        }
        said
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
    /// Who holds, and who has held and neither released cleanly nor was waited for, since it died; at most 64.
    /// `None` where nobody has written that down yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<Holder>>,
    /// How often one of them was left out; 0 when all that matter are named.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_holders: u32,
    /// What others keep here.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "so serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Control {
    /// Reads the control node; foreign data count as none, and are replaced by the next release. Those of more than
    /// 128 KiB are foreign, too.
    pub fn parse(data: &[u8]) -> Self {
        document(data, LONGEST_CONTROL_DATA).unwrap_or_default()
    }

    /// The same with a wish that contenders step down: as many of them, from the first on, as the data have room
    /// for. Who is left out is asked next time.
    pub fn with_yield(mut self, mut request: YieldRequest) -> Self {
        self.v = 1;
        self.yield_request = None;
        // Room for the releases that are noted meanwhile.
        let mut room = (LONGEST_CONTROL_DATA / 2).saturating_sub(self.to_data().len());
        request.contenders.retain(|name| {
            // With quotation marks and a comma. No name has what JSON writes in more bytes than ZooKeeper does.
            let fits = name.len() + 3 <= room;
            room = if fits { room - name.len() - 3 } else { 0 };
            fits
        });
        self.yield_request = Some(request);
        self
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

    /// Whether a contender that held under this token, and is gone, went without a clean release: its session expired, its
    /// node was deleted, or its lock was left to expire. Not where more releases have come since than are remembered, so
    /// that nobody can tell.
    pub fn was_lost(&self, contender: &str, token: FencingToken) -> bool {
        let is_owed = self
            .holders
            .iter()
            .flatten()
            .any(|holder| holder.contender == contender);
        let reaches_back = self.last_release.len() < REMEMBERED_RELEASES
            || self.last_release.iter().any(|release| release.token < token);
        !self.released(contender) && (is_owed || reaches_back)
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
            b"[\"held\"]",
            b"\xff\xfe",
            b"{\"state\":\"other\"}",
        ] {
            assert!(!ContenderData::parse(foreign).is_held());
        }
    }

    #[test]
    fn of_what_somebody_writes_nothing_is_believed_that_no_pod_is_called_and_nothing_long_is_read() {
        let parse = |pod: &str, rest: &str| {
            ContenderData::parse(format!(r#"{{"state":"held","pod":{pod}{rest}}}"#).as_bytes())
        };
        let pod = |name: &str| {
            serde_json::json!({ "namespace": "shop", "name": name, "uid": "u-1", "node": "n1.example" })
                .to_string()
        };
        assert!(parse(&pod("report-1"), "").pod.is_some());
        for name in ["", "\u{1b}[2J", "a b", "Report", "a\nb", &"a".repeat(254)] {
            let data = parse(&pod(name), "");
            assert!(data.pod.is_none() && data.is_held(), "{name:?}");
        }
        let data = parse(&pod("a"), r#","revision":"\u001b[31m","since":"\u0007""#);
        assert_eq!((data.revision, data.since), (None, None));
        let padding = format!(r#","other":"{}""#, "x".repeat(LONGEST_CONTENDER_DATA));
        assert_eq!(parse(&pod("a"), &padding), ContenderData::default());
        let control = format!(r#"{{"v":1,"note":"{}"}}"#, "x".repeat(LONGEST_CONTROL_DATA));
        assert_eq!(Control::parse(control.as_bytes()), Control::default());
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
    fn data_that_are_too_long_are_foreign() {
        let contender = |length: usize| {
            format!("{{\"state\":\"held\",\"note\":\"{}\"}}", "x".repeat(length)).into_bytes()
        };
        assert!(ContenderData::parse(&contender(4000)).is_held());
        assert!(!ContenderData::parse(&contender(4096)).is_held());
        let control =
            |objects: usize| format!("{{\"v\":1,\"note\":[{}0]}}", "{\"\":0},".repeat(objects)).into_bytes();
        assert_eq!(Control::parse(&control(16_000)).v, 1);
        // Of the megabyte that ZooKeeper takes, these would be a hundred in memory.
        assert_eq!(Control::parse(&control(130_000)), Control::default());
    }

    #[test]
    fn a_wish_has_as_many_contenders_as_keepers_read_the_first_ones_first() {
        let contenders: Vec<_> = (0..5000)
            .map(|number| format!("_c_{:036}-lock-{number:010}", 7))
            .collect();
        let request = YieldRequest {
            id: "7".into(),
            contenders: contenders.clone(),
        };
        let control = Control::parse(&Control::default().with_yield(request).to_data());
        let asked = control.yield_request.expect("it is read").contenders;
        assert!(asked.len() > 1000, "{}", asked.len());
        assert_eq!(asked, contenders[..asked.len()]);
    }

    #[test]
    fn a_holder_was_lost_when_it_is_gone_without_a_release_that_would_be_remembered() {
        let release = |at: i64| CleanRelease {
            contender: format!("c{at}"),
            token: FencingToken(at),
        };
        let mut control = Control::default();
        let was_lost = |control: &Control, at: i64| control.was_lost(&format!("c{at}"), FencingToken(at));
        assert!(was_lost(&control, 1), "nobody has released anything");
        for at in 10..30 {
            control = Control::parse(&control.with_release(release(at)));
        }
        assert!(!was_lost(&control, 29) && !was_lost(&control, 14), "it released");
        assert!(was_lost(&control, 31));
        assert!(
            !was_lost(&control, 13),
            "nobody can tell: it may have been forgotten"
        );
        control.holders = Some(vec![Holder {
            contender: "c13".into(),
            token: FencingToken(13),
        }]);
        assert!(was_lost(&control, 13), "it is written down as one that holds");
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
