//! What a contender says of itself, and what is believed of it.

use super::*;
use crate::record::{Control, LONGEST_CONTROL_DATA};

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
        host: None,
        revision: Some("6c9d".into()),
    };
    let took_over = TookOver {
        contender: "_c_1-lock-0000000001".into(),
        pod: Some(pod.clone()),
        silent_millis: 8_600,
    };
    let said = Said {
        is_held: true,
        since: now(),
        stop_budget: Duration::from_secs(3),
        lease: Some(Duration::from_millis(8_500)),
        took_over: Some(took_over.clone()),
        survivors: Some(Survivors {
            processes: Some(2),
            pid: Some(4711),
        }),
    };
    let data = ContenderData::parse(&contender_data(&identity, &said));
    assert!(data.is_held());
    assert_eq!(data.pod, Some(pod));
    assert_eq!(data.revision.as_deref(), Some("6c9d"));
    assert_eq!(data.stop_budget_millis, Some(3_000));
    assert_eq!(data.lease(), said.lease);
    assert_eq!(data.took_over, Some(took_over));
    assert_eq!(data.survivors, said.survivors);
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
    let lease = |millis: &str| parse(&pod("a"), &format!(r#","leaseMillis":{millis}"#)).lease();
    assert_eq!(lease("3600000"), Some(LONGEST_LEASE));
    for none in ["0", "3600001", "null"] {
        assert_eq!(lease(none), None, "{none}");
    }
    let budget =
        |millis: &str| parse(&pod("a"), &format!(r#","stopBudgetMillis":{millis}"#)).stop_budget_millis;
    assert_eq!(budget("86400000"), Some(86_400_000));
    for none in ["86400001", "360000000", "18446744073709551615"] {
        assert_eq!(budget(none), None, "{none}");
    }
    let took_over = |contender: &str| {
        let took_over = serde_json::json!({ "contender": contender, "silentMillis": 1 });
        parse(&pod("a"), &format!(r#","tookOver":{took_over}"#)).took_over
    };
    assert!(took_over("_c_1-lock-0000000001").is_some());
    for contender in [
        "",
        "somebody",
        "\u{1b}[2J-lock-0000000001",
        &format!("{}-lock-0000000001", "x".repeat(300)),
    ] {
        assert_eq!(took_over(contender), None, "{contender:?}");
    }
    let padding = format!(r#","other":"{}""#, "x".repeat(LONGEST_CONTENDER_DATA));
    assert_eq!(parse(&pod("a"), &padding), ContenderData::default());
    let control = format!(r#"{{"v":1,"note":"{}"}}"#, "x".repeat(LONGEST_CONTROL_DATA));
    assert_eq!(Control::parse(control.as_bytes()), Control::default());
}
