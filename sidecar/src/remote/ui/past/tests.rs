//! What the page remembers of holds, in gaps of knowledge too.

use lockkeeper_lock::{ContenderData, FencingToken, Participant};
use serde_json::{Value, json};

use super::*;

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

fn clock(second: u64) -> Value {
    json!(time(at(second)))
}

fn holder(name: &str, data: &str) -> Entry {
    let participant = Participant {
        name: name.to_owned(),
        token: FencingToken(7),
        is_holder: true,
        data: ContenderData::parse(data.as_bytes()).into(),
    };
    Entry::of(participant, None)
}

fn past(holds: &Past) -> Value {
    json!({"holds": holds.holds(), "unseen": holds.unseen()})
}

#[test]
fn a_hold_that_the_page_has_seen_has_the_times_at_which_the_ensemble_told_of_it() {
    let (a, b) = (holder("a", ""), holder("b", ""));
    let mut seen = Past::default();
    seen.see(&[], &Moments::default(), at(1));
    let mut moments = Moments::default();
    moments.said.insert("a".to_owned(), at(8));
    seen.see(&[&a], &moments, at(10));
    assert_eq!(seen.since("a"), Some(time(at(8))));
    let mut moments = Moments::default();
    moments.gone.insert("a".to_owned(), at(20));
    moments.said.insert("b".to_owned(), at(22));
    seen.see(&[&b], &moments, at(25));
    assert_eq!(seen.since("b"), Some(time(at(22))));
    assert_eq!(
        past(&seen),
        json!({"holds": [{"pod": "a", "since": clock(8), "until": clock(20), "ended": "left the queue"}], "unseen": []})
    );
}

#[test]
fn who_holds_when_the_page_starts_holds_since_it_says_and_since_unknown_if_its_clock_is_ahead() {
    let says = |second| format!(r#"{{"v":1,"state":"held","since":"{}"}}"#, time(at(second)));
    for (second, since) in [(5, Some(time(at(5)))), (500, None)] {
        let mut seen = Past::default();
        seen.see(&[&holder("a", &says(second))], &Moments::default(), at(100));
        assert_eq!(seen.since("a"), since);
    }
}

#[test]
fn a_takeover_names_who_took_it_and_the_silence() {
    let mut seen = Past::default();
    let name = "_c_00000000-0000-4000-8000-000000000000-lock-0000000001";
    seen.see(&[&holder(name, "")], &Moments::default(), at(1));
    let data = format!(
        r#"{{"v":1,"state":"held","host":"db-2","tookOver":{{"contender":"{name}","silentMillis":8612}}}}"#
    );
    seen.see(&[&holder("b", &data)], &Moments::default(), at(9));
    let told = past(&seen);
    assert_eq!(
        told["holds"][0],
        json!({"pod": name, "until": clock(9), "ended": "taken over", "takenBy": "db-2", "silence": "8612ms"})
    );
}

#[test]
fn a_time_in_which_the_lock_was_not_seen_is_no_gap_and_a_holder_that_stayed_has_held_all_the_time() {
    let (a, b, c) = (holder("a", ""), holder("b", ""), holder("c", ""));
    let mut seen = Past::default();
    seen.see(&[], &Moments::default(), at(1));
    seen.see(&[&a, &b], &Moments::default(), at(2));
    seen.lose(at(10));
    seen.lose(at(11));
    assert_eq!(past(&seen)["unseen"], json!([{"from": clock(10)}]));
    seen.see(&[&b, &c], &Moments::default(), at(20));
    assert_eq!(
        past(&seen),
        json!({
            "holds": [{"pod": "a", "since": clock(2), "until": clock(10), "ended": "not seen"}],
            "unseen": [{"from": clock(10), "until": clock(20)}],
        })
    );
    assert_eq!((seen.since("b"), seen.since("c")), (Some(time(at(2))), None));
}

#[test]
fn what_is_remembered_of_a_lock_is_bounded_and_claims_nothing_of_a_time_without_sight() {
    let mut seen = Past::default();
    seen.see(&[], &Moments::default(), at(0));
    for second in 1..=100 {
        seen.lose(at(10 * second));
        seen.see(
            &[&holder(&second.to_string(), "")],
            &Moments::default(),
            at(10 * second + 1),
        );
    }
    assert_eq!(
        (seen.holds().len(), seen.unseen().len()),
        (MOST_HOLDS, MOST_UNSEEN)
    );
    // The newest hold first, and the oldest time without sight reaches back to the first.
    assert_eq!(seen.holds()[0].pod, "99");
    assert_eq!(past(&seen)["unseen"][0]["from"], clock(10));
}
