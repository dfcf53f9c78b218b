use lockkeeper_lock::{ContenderData, FencingToken, Participant};
use serde_json::{Value, json};

use super::*;

fn name(number: i64) -> String {
    format!("_c_0-lock-{number:010}")
}

fn control(holds: Value) -> Control {
    Control::parse(json!({"v": 1, "holds": holds}).to_string().as_bytes())
}

/// A queue with this holder.
fn held_by(number: i64, data: &str) -> Queue {
    let participant = Participant {
        name: name(number),
        token: FencingToken(number),
        is_holder: true,
        data: ContenderData::parse(data.as_bytes()).into(),
    };
    Queue {
        holders: vec![Entry::of(participant, None)],
        ..free()
    }
}

fn free() -> Queue {
    Queue {
        missing: false,
        ..Queue::gone("/locks/report")
    }
}

fn then() -> SystemTime {
    humantime::parse_rfc3339("2026-01-01T00:41:00Z").unwrap()
}

fn past() -> Value {
    json!([
        {"contender": name(3), "token": 3, "host": "db-2", "since": "2026-01-01T00:40:00Z"},
        {"contender": name(2), "token": 2, "host": "db-1", "since": "2026-01-01T00:10:00Z", "until": "2026-01-01T00:40:00Z",
            "ended": "TakenOver", "takenBy": "db-2", "silentMillis": 8612},
        {"contender": name(1), "token": 1, "host": "db-2", "until": "2026-01-01T00:10:00Z", "ended": "HandedOver"},
    ])
}

const HOLDER: &str = r#"{"state":"held","host":"db-2","since":"2026-01-01T00:40:00Z"}"#;

#[test]
fn a_history_has_a_line_for_each_hold_with_its_times_and_how_it_ended_the_newest_first() {
    let control = control(past());
    let holds = Holds::of(held_by(3, HOLDER), &control, &control);
    assert_eq!(
        holds.table(then()),
        "WHO    TOKEN   SINCE                  UNTIL                  HELD   ENDED\n\
         db-2   -       2026-01-01T00:40:00Z   -                      60s    holds\n\
         db-1   2       2026-01-01T00:10:00Z   2026-01-01T00:40:00Z   30m    TakenOver by db-2 after 8612ms\n\
         db-2   1       -                      2026-01-01T00:10:00Z   -      HandedOver\n"
    );
    let told: Value = serde_json::from_str(&show::json(&holds)).unwrap();
    assert_eq!(told["lock"], "/locks/report");
    assert_eq!(told["holders"][0]["contender"], name(3).as_str());
    assert_eq!(
        told["history"][0],
        json!({"contender": name(2), "fencingToken": 2, "host": "db-1", "since": "2026-01-01T00:10:00Z",
            "until": "2026-01-01T00:40:00Z", "ended": "TakenOver", "takenBy": "db-2", "silentMillis": 8612})
    );
    assert_eq!(told["history"].as_array().unwrap().len(), 2);
}

#[test]
fn pods_are_shown_with_their_nodes() {
    let pod = json!({"namespace": "shop", "name": "report-1", "node": "n1"});
    let control = control(json!([{"contender": name(1), "token": 1, "pod": pod, "ended": "Lost"}]));
    assert_eq!(
        Holds::of(free(), &control, &control).table(then()),
        "WHO             NODE   TOKEN   SINCE   UNTIL   HELD   ENDED\n\
         shop/report-1   n1     1       -       -       -      Lost\n"
    );
}

#[test]
fn a_lock_without_a_history_says_so_in_a_sentence() {
    let none = Control::default();
    assert_eq!(
        Holds::of(free(), &none, &none).table(then()),
        "Nobody holds /locks/report, and no former holder is recorded.\n"
    );
    let text = Holds::of(held_by(3, HOLDER), &none, &none).table(then());
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.ends_with("\nNo former holder of /locks/report is recorded.\n"),
        "{text}"
    );
}

#[test]
fn a_holder_that_is_gone_without_a_word_is_lost_and_one_that_has_just_come_is_not() {
    let open = control(past());
    let ends = |queue, before: &Control, after: &Control| {
        let holds = Holds::of(queue, before, after);
        let past = holds.history.iter().map(|past| (past.fencing_token, past.ended));
        (holds.holders.len(), past.collect::<Vec<_>>())
    };
    let earlier = [(2, "TakenOver"), (1, "HandedOver")];
    let with = |first| [&[first], earlier.as_slice()].concat();
    assert_eq!(ends(free(), &open, &open), (0, with((3, "Lost"))));
    // It began to hold after the queue was read.
    let before = control(json!([]));
    assert_eq!(ends(free(), &before, &open), (0, earlier.to_vec()));
    // It released after the queue was read.
    let mut holds = past();
    holds[0]["ended"] = "Released".into();
    let after = control(holds);
    assert_eq!(
        ends(held_by(3, HOLDER), &open, &after),
        (0, with((3, "Released")))
    );
    // A contender of an earlier release has released in its place, or nothing is known any more.
    let many: Vec<_> = (10..26)
        .map(|token| json!({"contender": name(token), "token": token}))
        .collect();
    let data = json!({"v": 1, "holds": past(), "lastRelease": many}).to_string();
    let forgotten = Control::parse(data.as_bytes());
    assert_eq!(ends(free(), &forgotten, &forgotten), (0, with((3, "Unknown"))));
}

#[test]
fn what_somebody_writes_into_a_history_is_shown_and_not_carried_out() {
    let mut holds = past();
    holds[1]["takenBy"] = "\u{1b}[2J".into();
    holds[1]["since"] = "\u{9b}31m".into();
    holds[1]["until"] = "yesterday".into();
    holds[1]["silentMillis"] = u64::MAX.into();
    holds[2]["host"] = "\u{202e}b\nroot".into();
    let control = control(holds);
    let text = Holds::of(free(), &control, &control).table(then());
    let is_odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(is_odd), "{text:?}");
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("yesterday"), "{text}");
}
