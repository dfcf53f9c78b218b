//! A lock at one moment, as it is shown.

use std::time::Duration;

use lockkeeper_lock::{FencingToken, TookOver};

use super::*;

fn guarded(survivors: Survivors) -> Guarded {
    Guarded {
        survivors: Some(survivors),
        ..Guarded::default()
    }
}

fn about() -> About {
    About::exclusive("/l")
}

fn at(millis: u64) -> BootInstant {
    BootInstant::from_nanos(millis * 1_000_000)
}

fn held_until(end: BootInstant) -> LockStatus {
    LockStatus {
        state: LockState::Held,
        token: Some(FencingToken(4_294_967_331)),
        position: Some(0),
        lease_end: Some(end),
        session: Some(0x1000_0abc),
        session_timeout: Some(Duration::from_secs(10)),
        ..LockStatus::new()
    }
}

#[test]
fn the_remaining_time_ends_at_the_deadline_by_the_negotiated_session_timeout() {
    // 10 s were negotiated, 15 s wished for: the margin is 100 ms + 200 ms.
    let snapshot = about().snapshot(&held_until(at(9_000)), Guarded::default(), true, at(1_000));
    assert_eq!(snapshot.remaining_millis, Some(7_700));
    let json = r#"{"lock":"/l","state":"Held","access":"exclusive","fencingToken":4294967331,"position":0,"remainingMillis":7700,"stopBudgetMillis":3000,"session":"0x10000abc"}"#;
    assert_eq!(serde_json::to_string(&snapshot).unwrap(), json);
    assert_eq!(serde_json::from_str::<Snapshot>(json).unwrap(), snapshot);
}

#[test]
fn the_lease_duration_and_a_takeover_are_shown_while_we_are_in_the_queue() {
    let status = LockStatus {
        lease_duration: Some(Duration::from_millis(8_500)),
        took_over: Some(TookOver {
            contender: "c-lock-0000000007".to_owned(),
            pod: None,
            silent_millis: 8_612,
        }),
        ..held_until(at(9_000))
    };
    let shown = |now| {
        let snapshot = about().snapshot(&status, Guarded::default(), true, now);
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
        json
    };
    let both = r#""leaseMillis":8500,"tookOver":{"contender":"c-lock-0000000007","silentMillis":8612}"#;
    assert!(shown(at(1_000)).contains(both), "{}", shown(at(1_000)));
    let lost = shown(at(9_000));
    assert!(
        !lost.contains("leaseMillis") && !lost.contains("tookOver"),
        "{lost}"
    );
}

#[test]
fn a_lock_past_its_deadline_is_not_held_whatever_was_published() {
    for state in [LockState::Held, LockState::Suspended] {
        let status = LockStatus {
            state,
            ..held_until(at(9_000))
        };
        let before = about().snapshot(&status, Guarded::default(), true, at(8_699));
        assert_eq!((before.state, before.remaining_millis), (state, Some(1)));
        assert!(before.is_held());
        for now in [8_700, 9_000, 60_000] {
            let after = about().snapshot(&status, Guarded::default(), true, at(now));
            assert_eq!(after.state, LockState::Lost);
            assert_eq!(
                (after.fencing_token, after.remaining_millis, after.position),
                (None, None, None)
            );
        }
    }
}

#[test]
fn nothing_is_held_once_the_task_of_the_lock_is_gone() {
    let status = held_until(at(9_000));
    let snapshot = about().snapshot(&status, Guarded::default(), false, at(1_000));
    assert_eq!(snapshot.state, LockState::Lost);
    assert_eq!((snapshot.fencing_token, snapshot.session), (None, None));
    let waiting = LockStatus {
        state: LockState::Waiting,
        ..status
    };
    assert_eq!(
        about()
            .snapshot(&waiting, Guarded::default(), false, at(1_000))
            .state,
        LockState::Lost
    );
    assert_eq!(
        about()
            .snapshot(&LockStatus::new(), Guarded::default(), false, at(1_000))
            .state,
        LockState::Released
    );
}

#[test]
fn a_waiter_with_a_valid_lease_shows_its_position_and_no_token() {
    let heir = LockStatus {
        state: LockState::Waiting,
        position: Some(1),
        ..held_until(at(9_000))
    };
    let snapshot = about().snapshot(&heir, Guarded::default(), true, at(1_000));
    assert_eq!((snapshot.fencing_token, snapshot.remaining_millis), (None, None));
    assert_eq!(snapshot.position, Some(1));
    assert_eq!(snapshot.explain(), "waiting in the queue, 1 before us");
    assert!(snapshot.is_queued() && !snapshot.is_held());
}

#[test]
fn what_has_outlived_its_deadline_is_named_with_what_becomes_of_the_lock() {
    let some = Survivors {
        processes: Some(2),
        pid: Some(4711),
        given_up: false,
    };
    let lost = LockStatus {
        state: LockState::Lost,
        contender: Some("_c_1-lock-0000000000".to_owned()),
        ..LockStatus::new()
    };
    let explain = |status: &LockStatus, survivors| {
        about()
            .snapshot(status, guarded(survivors), true, at(1_000))
            .explain()
    };
    assert_eq!(
        explain(&lost, some),
        "lost, and not yet in the queue again (2 processes of the application have outlived SIGKILL (process 4711); \
         no other contender gets the lock until it has gone, or until `lockkeeper release --abandon-survivors` gives \
         it up)"
    );
    let gone = LockStatus {
        contender: None,
        ..lost.clone()
    };
    assert!(explain(&gone, some).contains("the session is over"));
    let given_up = Survivors {
        given_up: true,
        ..some
    };
    assert!(explain(&lost, given_up).contains("given up by hand"));
    let snapshot = about().snapshot(&lost, guarded(some), true, at(1_000));
    let json = serde_json::to_string(&snapshot).unwrap();
    let part = r#""survivors":{"processes":2,"pid":4711,"givenUp":false}"#;
    assert!(json.contains(part), "{json}");
    assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
}

#[test]
fn why_a_lock_cannot_be_had_is_shown_and_said() {
    use lockkeeper_lock::LockError;
    use lockkeeper_lock::ensemble::EnsembleError;

    let missing = LockStatus {
        state: LockState::Connecting,
        refusal: Some(LockError::NotProvided {
            path: "/l".to_owned(),
            error: EnsembleError::NoNode,
        }),
        ..LockStatus::new()
    };
    let snapshot = about().snapshot(&missing, Guarded::default(), true, at(1_000));
    assert_eq!(
        snapshot.explain(),
        "waiting to be let into the queue (/l is not provided: the node does not exist)"
    );
    let json = serde_json::to_string(&snapshot).unwrap();
    let part = r#""reason":"/l is not provided: the node does not exist""#;
    assert!(json.contains(part), "{json}");
    assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);

    let refused = LockStatus {
        state: LockState::Released,
        refusal: Some(LockError::Refused {
            action: "cannot list /l".to_owned(),
            error: EnsembleError::NoAuth,
        }),
        ..LockStatus::new()
    };
    let snapshot = about().snapshot(&refused, Guarded::default(), true, at(1_000));
    assert_eq!(
        snapshot.explain(),
        "not in the queue (cannot list /l: no right to do this)"
    );
}
