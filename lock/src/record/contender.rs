//! The data of a contender: its description of itself.

use serde::{Deserialize, Serialize};

use super::document::document;

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

/// Identity of a contender, for people and for the operator. The lock does not use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The pod; `None` outside Kubernetes.
    pub pod: Option<Pod>,
    /// Revision of the workload that the pod belongs to.
    pub revision: Option<String>,
}

/// Longest data of a contender that is read, in bytes. Ours have 80 to 300 bytes; its owner may write as much as a
/// server accepts (`jute.maxbuffer`, 1 MB).
pub const LONGEST_CONTENDER_DATA: usize = 4096;

/// Longest name of an object in Kubernetes (DNS subdomain, RFC 1123), in bytes.
const LONGEST_NAME: usize = 253;

/// Longest UID, value of a label (the revision is one), and time, in bytes.
const LONGEST_WORD: usize = 64;

impl Pod {
    /// Whether this may be the identity of a pod: names are DNS subdomains, a UID has letters, digits and dashes. Any
    /// client can write here, and the text appears in terminals and events.
    pub fn is_plausible(&self) -> bool {
        let is_name = |text: &str| {
            let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
            !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(is_part)
        };
        is_name(&self.namespace) && is_name(&self.name) && is_name(&self.node) && is_word(&self.uid)
    }
}

/// Whether this is short and has only letters, digits and `-`, `_`, `.`, `:`.
fn is_word(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    !text.is_empty() && text.len() <= LONGEST_WORD && text.bytes().all(is_part)
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
    revision: Option<&'a str>,
    since: String,
    stop_budget_millis: u64,
}

/// Data of a contender that waits or holds from now on. `stop_budget` is the time that its application may take to
/// stop.
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
    /// The pod.
    pub pod: Option<Pod>,
    /// Revision of its workload.
    pub revision: Option<String>,
    /// RFC 3339, on the clock of its machine: only for people.
    pub since: Option<String>,
    /// Time that its application may take to stop, in milliseconds.
    pub stop_budget_millis: Option<u64>,
}

impl ContenderData {
    /// Reads a contender's data. Data longer than [`LONGEST_CONTENDER_DATA`] count as empty, and so does a pod, a
    /// revision or a time that is not plausible.
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

    /// Whether the contender reports that it holds. No other source knows it better.
    pub fn is_held(&self) -> bool {
        self.state == "held"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Control, LONGEST_CONTROL_DATA};
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
}
