//! What the lock's real task does is what the specification in `lock/spec` allows, and TLC tells when it is not.

use std::collections::BTreeSet;

use lockkeeper_campaign::{SEED_VARIABLE, seed_from_environment};
use lockkeeper_conformance::report::{Report, judge};
use lockkeeper_conformance::rounds::Rounds;
use lockkeeper_conformance::times;
use lockkeeper_conformance::tlc::{Tlc, Verdict};
use lockkeeper_conformance::trace::{Event, Kind, Trace};
use lockkeeper_conformance::wrong::{Mistake, spoil};
use lockkeeper_testbed::Unsupported;

/// Locks of a round. On most machines all faults occur in one round, and a takeover is among them.
const TRACES: usize = 20;

/// The most rounds that are played until enough has happened: a busy machine gets less done in the time of a round.
const ROUNDS: usize = 6;

/// TLC, where `make` has fetched it.
fn tlc() -> Option<Tlc> {
    match Tlc::find() {
        Ok(tlc) => Some(tlc),
        Err(error) => {
            lockkeeper_skip::skip(error);
            None
        }
    }
}

#[test]
fn what_the_lock_does_on_real_servers_under_faults_is_what_its_specification_allows() {
    let Some(tlc) = tlc() else { return };
    let seed = seed_from_environment();
    println!("{SEED_VARIABLE}={seed}");
    let mut rounds = match Rounds::start(seed) {
        Ok(rounds) => rounds,
        Err(error) if error.is::<Unsupported>() => return lockkeeper_skip::skip(error),
        Err(error) => panic!("{error:#}"),
    };
    let mut report = Report::default();
    for _ in 0..ROUNDS {
        let traces = rounds.round(TRACES).unwrap();
        report.add(&judge(&tlc, traces).unwrap());
        println!("{report}");
        assert!(report.bad.is_empty(), "{}", report.bad.join("\n"));
        if shows_enough(&report) {
            return;
        }
    }
    panic!("too little happened to show anything: {report}");
}

/// Handoffs and takeovers, and enough of both to spoil.
fn shows_enough(report: &Report) -> bool {
    let rejected = report.spoilt.iter().filter(|(_, count)| *count > 0);
    report.holders > TRACES && report.takeovers > 0 && rejected.count() >= 4
}

/// In milliseconds.
fn event(at: u64, kind: Kind, who: usize, whom: usize, number: i64) -> Event {
    let is_moment = matches!(kind, Kind::Acked | Kind::Refused | Kind::Granted);
    Event {
        at: at * 1_000,
        kind,
        who,
        whom,
        number: if is_moment { number * 1_000 } else { number },
    }
}

/// The first one is silent, and the second takes its place, releases, and is followed by the third.
fn a_right_trace() -> Trace {
    use Kind::{Acked, Gone, Granted, Read, Releasing, Sent, Shown, Stopped, Taking};
    let lease = i64::try_from(times::until_the_deadline().as_millis()).unwrap();
    let wait = u64::try_from(times::wait().as_millis()).unwrap();
    let taken = 510 + wait;
    let sent = taken.cast_signed();
    let events = vec![
        event(0, Sent, 1, 0, 0),
        event(5, Acked, 1, 0, 0),
        event(10, Sent, 1, 0, 0),
        event(15, Acked, 1, 0, 10),
        event(16, Granted, 1, 0, 10 + lease),
        event(400, Sent, 1, 0, 0),
        event(405, Acked, 1, 0, 400),
        event(406, Granted, 1, 0, 400 + lease),
        event(450, Sent, 2, 0, 0),
        event(455, Acked, 2, 0, 450),
        event(460, Sent, 3, 0, 0),
        event(465, Acked, 3, 0, 460),
        event(500, Read, 2, 1, 2),
        event(501, Shown, 3, 2, 0),
        event(taken, Taking, 2, 1, 2),
        event(taken + 2, Acked, 2, 0, sent),
        event(taken + 3, Granted, 2, 0, sent + lease),
        event(taken + 4, Gone, 1, 1, 0),
        event(taken + 100, Sent, 2, 0, 0),
        event(taken + 105, Acked, 2, 0, sent + 100),
        event(taken + 106, Granted, 2, 0, sent + 100 + lease),
        event(taken + 110, Read, 3, 2, 2),
        event(taken + 120, Sent, 3, 0, 0),
        event(taken + 125, Acked, 3, 0, sent + 120),
        event(taken + 200, Stopped, 2, 0, 0),
        event(taken + 201, Releasing, 2, 0, 0),
        event(taken + 205, Gone, 3, 2, 0),
        event(taken + 210, Sent, 3, 0, 0),
        event(taken + 215, Acked, 3, 0, sent + 210),
        event(taken + 216, Granted, 3, 0, sent + 210 + lease),
    ];
    Trace {
        events,
        contenders: 3,
        losses: 0,
    }
}

/// As before, until the second one takes over. It leaves, and then hears that it has taken over, and when it is gone the
/// third is shown what it has written last.
fn a_right_trace_with_late_answers() -> Trace {
    use Kind::{Acked, Gone, Read, Releasing, Sent};
    let mut trace = a_right_trace();
    let taking = trace.events.iter().position(|event| event.kind == Kind::Taking);
    trace.events.truncate(taking.unwrap() + 1);
    let sent = trace.events.last().unwrap().at / 1_000;
    trace.events.extend([
        event(sent + 10, Sent, 2, 0, 0),
        event(sent + 20, Releasing, 2, 0, 0),
        event(sent + 30, Acked, 2, 0, sent.cast_signed()),
        event(sent + 40, Gone, 3, 2, 0),
        event(sent + 50, Read, 3, 2, 2),
    ]);
    trace
}

#[test]
fn answers_that_come_late_make_no_trace_wrong_and_hide_no_mistake() {
    let Some(tlc) = tlc() else { return };
    let right = a_right_trace_with_late_answers();
    let spoilt = [Mistake::TooEarly, Mistake::OldVersion].map(|mistake| spoil(&right, mistake).unwrap());
    let [too_early, old_version] = spoilt;
    let verdicts = tlc.judge(&[right, too_early, old_version]).unwrap();
    assert_eq!(verdicts[0], Verdict::Accepted);
    assert!(!verdicts[1..].contains(&Verdict::Accepted), "{verdicts:?}");
}

#[test]
fn a_trace_with_a_single_mistake_is_rejected_whichever_it_is() {
    let Some(tlc) = tlc() else { return };
    let right = a_right_trace();
    let mut traces = vec![right.clone()];
    traces.extend(
        Mistake::ALL
            .map(|mistake| spoil(&right, mistake).unwrap_or_else(|| panic!("no place for {mistake}"))),
    );
    let verdicts = tlc.judge(&traces).unwrap();
    assert_eq!(verdicts[0], Verdict::Accepted);
    for (mistake, verdict) in Mistake::ALL.iter().zip(&verdicts[1..]) {
        assert_ne!(*verdict, Verdict::Accepted, "{mistake}");
    }
    // They are rejected for different reasons, and not for what they have in common.
    let places: BTreeSet<_> = verdicts.iter().map(|verdict| format!("{verdict:?}")).collect();
    assert!(places.len() > 4, "{verdicts:?}");
}
