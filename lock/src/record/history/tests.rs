use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::queue::{Ahead, Mode};
use crate::record::contender::ContenderData;
use crate::record::hold::{HolderPod, LONGEST_WHO};
use crate::record::{CleanRelease, Debts, YieldRequest};

fn name(number: i64) -> String {
    format!("_c_00000000-0000-0000-0000-000000000000-lock-{number:010}")
}

fn holder(number: i64) -> Holder {
    Holder {
        contender: name(number),
        token: FencingToken(number),
    }
}

fn on_host(host: &str) -> Identity {
    Identity {
        host: Some(host.to_owned()),
        ..Identity::default()
    }
}

fn witness(identity: &Identity) -> Witness<'_> {
    Witness {
        identity,
        since: Some("2026-01-01T00:10:00Z"),
        seen: &[],
        took_over: None,
    }
}

/// What a reader finds there afterwards.
fn written(control: &Control) -> Control {
    Control::parse(&control.to_data())
}

fn claimed_in(
    mode: Mode,
    ahead: Option<&Ahead>,
    control: Control,
    number: i64,
    witness: Witness<'_>,
) -> Control {
    let claimant = Claimant {
        own: holder(number),
        mode,
        root: FencingToken(0),
        ahead,
        suspects: &BTreeSet::new(),
    };
    let control = control
        .with_hold(&claimant, &witness)
        .with_claim(&claimant, &Debts::default());
    written(&control)
}

fn claimed(control: Control, number: i64, witness: Witness<'_>) -> Control {
    claimed_in(Mode::Exclusive, None, control, number, witness)
}

fn released(control: Control, number: i64, witness: Witness<'_>) -> Control {
    let control = control.with_account(witness.account(holder(number)));
    let Holder { contender, token } = holder(number);
    Control::parse(&control.with_release(CleanRelease { contender, token }))
}

fn asked(control: Control, number: i64) -> Control {
    control.with_yield(YieldRequest {
        id: "7".into(),
        contenders: vec![name(number)],
    })
}

fn ends(control: &Control) -> Vec<(i64, Option<HoldEnd>)> {
    let holds = control.holds.iter();
    holds.map(|hold| (hold.token.0, hold.ended)).collect()
}

/// A holder as the next one sees it.
fn seen(number: i64) -> Hold {
    let said = br#"{"state":"held","host":"db-1","since":"2026-01-01T00:00:00Z"}"#;
    let hold = Hold::said(&name(number), FencingToken(number), &ContenderData::parse(said));
    hold.expect("it holds").seen_to_end()
}

#[test]
fn each_hold_is_told_with_who_held_when_and_how_it_ended_the_newest_first() {
    let (db1, db2) = (on_host("db-1"), on_host("db-2"));
    let control = claimed(Control::new(), 1, witness(&db1));
    assert_eq!(ends(&control), [(1, None)], "it lasts");
    let control = released(control, 1, witness(&db1));
    let control = asked(claimed(control, 2, witness(&db2)), 2);
    let control = claimed(released(control, 2, witness(&db2)), 3, witness(&db1));
    assert_eq!(
        ends(&control),
        [
            (3, None),
            (2, Some(HoldEnd::HandedOver)),
            (1, Some(HoldEnd::Released))
        ]
    );
    let first = &control.holds[2];
    assert_eq!(first.who(), "db-1");
    assert_eq!(first.since.as_deref(), Some("2026-01-01T00:10:00Z"));
    assert!(humantime::parse_rfc3339(first.until.as_deref().unwrap()).is_ok());
}

#[test]
fn a_holder_whose_place_is_taken_is_told_with_who_took_it_and_how_long_it_was_silent() {
    let taken = TookOver {
        contender: name(1),
        pod: None,
        silent_millis: 8_612,
    };
    let (db1, db2) = (on_host("db-1"), on_host("db-2"));
    let heir = |seen| Witness {
        took_over: Some(&taken),
        seen,
        ..witness(&db2)
    };
    let held = claimed(Control::new(), 1, witness(&db1));
    let saw = [seen(1)];
    for (before, seen) in [(held.clone(), &saw[..]), (held, &[]), (Control::new(), &saw)] {
        let control = claimed(before, 2, heir(seen));
        assert_eq!(ends(&control), [(2, None), (1, Some(HoldEnd::TakenOver))]);
        let past = &control.holds[1];
        assert_eq!(
            (past.taken_by.as_deref(), past.silent_millis),
            (Some("db-2"), Some(8_612))
        );
        assert_eq!(past.until.is_some(), !seen.is_empty(), "nobody guesses when");
        assert_eq!(past.who(), "db-1");
    }
    // Only its name is known: that is no hold.
    assert_eq!(ends(&claimed(Control::new(), 2, heir(&[]))), [(2, None)]);
}

#[test]
fn a_holder_that_disappeared_is_lost_and_a_takeover_that_is_told_later_explains_it() {
    let (db1, db2) = (on_host("db-1"), on_host("db-2"));
    let held = claimed(Control::new(), 1, witness(&db1));
    let lost = claimed(held, 3, witness(&db2));
    assert_eq!(ends(&lost), [(3, None), (1, Some(HoldEnd::Lost))]);
    assert_eq!(lost.holds[1].until, None);
    let taken = TookOver {
        contender: name(1),
        pod: None,
        silent_millis: 1,
    };
    let taker = Witness {
        took_over: Some(&taken),
        ..witness(&db2)
    };
    let told = released(lost, 3, taker);
    assert_eq!(
        ends(&told),
        [(3, Some(HoldEnd::Released)), (1, Some(HoldEnd::TakenOver))]
    );
}

#[test]
fn a_release_of_a_contender_that_keeps_no_history_is_noted_by_the_one_that_saw_it() {
    let db2 = on_host("db-2");
    let saw = [seen(1), seen(2), seen(3)];
    let release = |number| {
        let Holder { contender, token } = holder(number);
        CleanRelease { contender, token }
    };
    let control = Control::parse(&Control::new().with_release(release(1)));
    let control = asked(Control::parse(&control.with_release(release(2))), 2);
    let heir = Witness {
        seen: &saw,
        ..witness(&db2)
    };
    let control = claimed(control, 4, heir);
    let expected = [
        (4, None),
        (3, Some(HoldEnd::Lost)),
        (2, Some(HoldEnd::HandedOver)),
        (1, Some(HoldEnd::Released)),
    ];
    assert_eq!(ends(&control), expected);
    // What is noted once is not noted again.
    assert_eq!(ends(&released(control, 4, heir))[1..], expected[1..]);
}

#[test]
fn holders_beside_the_own_one_are_not_told_as_gone() {
    let db1 = on_host("db-1");
    let mode = Mode::Semaphore(NonZeroU32::new(3).unwrap());
    let ahead = |others: &[i64], own| {
        let children: Vec<_> = others.iter().chain([&own]).map(|number| name(*number)).collect();
        Ahead::from_children(&children, &name(own), mode)
    };
    let claims =
        |control, ahead: Option<Ahead>, own| claimed_in(mode, ahead.as_ref(), control, own, witness(&db1));
    let control = claims(Control::new(), ahead(&[], 1), 1);
    let control = claims(control, ahead(&[1], 2), 2);
    // It does not know who is before it.
    let control = claims(control, None, 3);
    assert_eq!(ends(&control), [(3, None), (2, None), (1, None)]);
    let control = claims(control, ahead(&[2, 3], 4), 4);
    assert_eq!(
        ends(&control),
        [(4, None), (3, None), (2, None), (1, Some(HoldEnd::Lost))]
    );
}

#[test]
fn the_last_holds_are_kept_and_one_that_was_forgotten_does_not_come_back() {
    let db1 = on_host("db-1");
    let mut control = Control::new();
    for number in 1..=40 {
        control = released(claimed(control, number, witness(&db1)), number, witness(&db1));
    }
    let tokens = control.holds.iter().map(|hold| hold.token.0);
    assert!(tokens.eq((33..=40).rev()));
    let saw = [seen(1)];
    let late = Witness {
        seen: &saw,
        ..witness(&db1)
    };
    let control = released(control, 41, late);
    assert_eq!((control.holds.len(), control.holds[0].token.0), (HOLDS_KEPT, 41));
    assert!(control.holds.iter().all(|hold| hold.token.0 > 1));
}

#[test]
fn a_waiter_that_leaves_has_not_held() {
    let db1 = on_host("db-1");
    let waiter = Witness {
        since: None,
        ..witness(&db1)
    };
    assert_eq!(Control::new().with_account(waiter.account(holder(1))).holds, []);
}

#[test]
fn whatever_others_write_as_holds_leaves_the_rest_of_the_control_node_as_it_is() {
    let with = |holds: Value| {
        let control = json!({"v": 1, "yield": {"id": "7", "contenders": ["a"]},
            "lastRelease": [{"contender": "b", "token": 9}], "holders": [], "holds": holds, "note": "x"});
        Control::parse(control.to_string().as_bytes())
    };
    let good = json!({"contender": name(1), "token": 1, "host": "db-1", "since": "2026-01-01T00:00:00Z", "ended": "Frozen"});
    let (escape, long) = ("\u{1b}[2J", "x".repeat(5_000));
    let odd = json!({"contender": name(2), "token": 2, "host": escape, "since": long, "until": "\u{202e}", "ended": "Lost",
        "takenBy": long, "pod": {"namespace": "a", "name": escape, "node": "n"}});
    for holds in [json!("junk"), json!({"a": 1}), json!(7), Value::Null, json!([])] {
        assert_eq!(with(holds.clone()).holds, [], "{holds}");
    }
    let control = with(
        json!([7, {}, {"contender": escape, "token": 1}, {"contender": name(3), "token": "9"}, odd, good]),
    );
    assert_eq!(
        ends(&control),
        [(2, Some(HoldEnd::Lost)), (1, Some(HoldEnd::Unknown))]
    );
    let bare = Hold::new(name(2), FencingToken(2), None, None);
    let lost = Some(HoldEnd::Lost);
    assert_eq!(control.holds[0], Hold { ended: lost, ..bare });
    assert!(control.asks("a") && control.released("b") && control.holders.is_some());
    assert_eq!(control.other.len(), 1);
    let many: Vec<_> = (0..100).map(|_| good.clone()).collect();
    assert_eq!(with(many.into()).holds.len(), HOLDS_KEPT);
}

#[test]
fn the_longest_history_takes_an_eighth_of_a_control_node_at_most() {
    let long = |byte: &str, length: usize| byte.repeat(length);
    let hold = |number: i64| Hold {
        contender: format!("{}-lock-{number:010}", long("x", 253 - 16)),
        token: FencingToken(i64::MAX),
        pod: Some(HolderPod {
            namespace: long("a", 253),
            name: long("b", 253),
            node: long("c", 253),
        }),
        host: Some(long("d", 64)),
        since: Some(long("1", 64)),
        until: Some(long("2", 64)),
        ended: Some(HoldEnd::HandedOver),
        // Each takes two bytes in JSON.
        taken_by: Some(long("\"", LONGEST_WHO)),
        silent_millis: Some(u64::MAX),
    };
    let control = Control {
        holds: (0..8).map(hold).collect(),
        ..Control::new()
    };
    assert_eq!(written(&control), control, "all of it is plausible");
    let length = control.to_data().len();
    assert!(length < 16 << 10, "{length}");
}

/// The control node as the release before this one knows it.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EarlierControl {
    v: u32,
    #[serde(rename = "yield", skip_serializing_if = "Option::is_none")]
    yield_request: Option<YieldRequest>,
    last_release: Vec<CleanRelease>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<Holder>>,
    #[serde(flatten)]
    other: serde_json::Map<String, Value>,
}

#[test]
fn a_contender_of_an_earlier_release_reads_its_fields_and_keeps_the_holds() {
    let db1 = on_host("db-1");
    let control = released(claimed(Control::new(), 1, witness(&db1)), 1, witness(&db1));
    let control = claimed(control, 2, witness(&db1));
    let mut earlier: EarlierControl = serde_json::from_slice(&control.to_data()).unwrap();
    assert_eq!(earlier.last_release, control.last_release);
    assert_eq!(earlier.holders, control.holders);
    // It takes the lock after the second, which has died.
    earlier.holders = Some(vec![holder(3)]);
    let after = Control::parse(&serde_json::to_vec(&earlier).unwrap());
    assert_eq!(after.holds, control.holds);
    // And data without the field are those of a lock without a history.
    let old = Control::parse(br#"{"v":1,"lastRelease":[{"contender":"b","token":9}]}"#);
    assert_eq!((old.v, old.holds.len()), (1, 0));
    assert!(!String::from_utf8(old.to_data()).unwrap().contains("holds"));
}
