//! What may be left of an application: the lock is kept for it, and only a proof or a word ends that.

use super::*;
use crate::view::Survivors;

fn holding_or_releasing() -> [Policy; 2] {
    [OnExit::Release, OnExit::Hold].map(|on_exit| Policy {
        on_exit,
        ..policy(Kind::Wrap)
    })
}

#[test]
fn the_lock_is_kept_while_the_process_of_a_guard_lives_that_is_not_connected() {
    for policy in holding_or_releasing() {
        let mut desk = Desk::running(policy);
        desk.decider.guard_lost(true);
        assert_eq!(desk.decide(), [Act::RemoveLease]);
        assert_eq!(desk.at(10_649), []);
        assert_eq!(
            desk.decider.survivors(ms(10_649)),
            None,
            "it has until its deadline"
        );
        assert_eq!(desk.wake_at(), Some(ms(10_650)));
        assert_eq!(desk.at(10_650), []);
        let survivors = Survivors {
            processes: None,
            pid: None,
            given_up: false,
        };
        assert_eq!(desk.decider.survivors(ms(10_650)), Some(survivors));
        assert!(desk.decider.has_survivors(ms(10_650)));
        assert_eq!(desk.lock(lost(LossReason::DeadlineReached)), []);
        assert_eq!(desk.at(600_000), []);
        assert!(desk.decider.keeps_the_contender());
        // It was away, and comes back with nothing.
        assert_eq!(desk.said(hello(None, false)), [RELEASE]);
    }
}

#[test]
fn the_end_of_a_guard_that_ends_all_with_it_releases_the_lock_without_waiting_for_the_next() {
    let [releasing, holding] = holding_or_releasing();
    let mut desk = Desk::running(releasing);
    desk.decider.guard_lost(true);
    assert_eq!(desk.decide(), [Act::RemoveLease]);
    desk.decider.guard_ended(true);
    assert_eq!(desk.decide(), [RELEASE]);
    assert_eq!(desk.answered(released()), []);
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);

    let mut desk = Desk::running(holding);
    desk.decider.guard_lost(true);
    desk.decide();
    desk.decider.guard_ended(true);
    assert_eq!(desk.decide(), []);
    assert_eq!(
        desk.said(hello(None, false)),
        [Act::WriteLease(A), grant(A, true, 11_000)]
    );
}

#[test]
fn the_end_of_a_guard_that_proves_nothing_leaves_the_lock_to_expire_and_starts_nothing_under_it() {
    for is_told in [true, false] {
        for policy in holding_or_releasing() {
            let mut desk = Desk::running(policy);
            desk.decider.guard_lost(is_told);
            assert_eq!(desk.decide(), [Act::RemoveLease]);
            if is_told {
                desk.decider.guard_ended(false);
                assert_eq!(desk.decide(), []);
            }
            assert!(!desk.decider.keeps_the_contender());
            desk.decider.guard_succeeded();
            assert_eq!(desk.decide(), [Act::Abandon]);
            assert_eq!(desk.said(hello(None, false)), [CONTEND]);
        }
    }
}

#[test]
fn another_guard_after_one_that_had_nothing_changes_nothing() {
    for policy in holding_or_releasing() {
        let mut desk = Desk::waiting(policy);
        desk.decider.guard_lost(false);
        desk.decider.guard_succeeded();
        assert_eq!(desk.decide(), []);
        assert_eq!(desk.said(hello(None, false)), []);
        assert_eq!(desk.lock(held(A, 11_000)).len(), 2, "it starts");
    }
}

#[test]
fn nobody_gets_the_lock_and_nothing_is_started_while_something_outlives_sigkill() {
    for kind in [Kind::Run, Kind::Signal] {
        let mut desk = Desk::running(policy(kind));
        desk.at(10_650);
        assert_eq!(desk.said(survivors(A)), []);
        assert_eq!(desk.lock(lost(LossReason::DeadlineReached)), []);
        assert!(desk.decider.keeps_the_contender());
        let seen = desk.decider.survivors(ms(desk.now)).unwrap();
        assert_eq!((seen.processes, seen.pid), (Some(1), Some(9)));
        // The lease would be valid again, if it were not lost.
        desk.lock(LockStatus {
            lease_end: Some(ms(900_000)),
            ..lost(LossReason::DeadlineReached)
        });
        assert_eq!(desk.at(600_000), [], "{kind:?}");
        assert_eq!(desk.said(GONE), [RELEASE]);
        assert_eq!(desk.decider.survivors(ms(desk.now)), None);
        assert!(!desk.decider.keeps_the_contender());
    }
}

#[test]
fn what_outlives_a_guard_that_ends_because_of_it_is_named_until_the_end_of_its_process() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.at(10_650);
    desk.said(survivors(A));
    desk.decider.guard_lost(true);
    desk.lock(lost(LossReason::DeadlineReached));
    for now in [10_651, 600_000] {
        desk.at(now);
        let seen = desk.decider.survivors(ms(now)).unwrap();
        assert_eq!((seen.processes, seen.pid), (Some(1), Some(9)));
        assert!(desk.decider.has_survivors(ms(now)) && desk.decider.keeps_the_contender());
    }
    desk.decider.guard_ended(true);
    assert_eq!(desk.decider.survivors(ms(desk.now)), None);
    assert!(!desk.decider.keeps_the_contender());
}

#[test]
fn what_outlives_its_guard_keeps_the_lock_also_from_a_keeper_that_is_refused() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.decider.refused();
    desk.decide();
    desk.said(survivors(A));
    desk.decider.guard_lost(true);
    for now in [10_651, 600_000] {
        let acts = desk.at(now);
        assert!(
            !acts.iter().any(|act| matches!(act, Act::End(_) | Act::Abandon)),
            "{acts:?}"
        );
        assert!(desk.decider.keeps_the_contender());
    }
    desk.decider.guard_ended(true);
    assert!(desk.decide().contains(&RELEASE), "nothing is left");
}

#[test]
fn what_the_guard_could_not_see_keeps_the_lock_and_is_no_survivor_before_it_says_so_again() {
    let unseen = FromGuard::Survivors {
        token: A,
        count: 0,
        pid: 0,
    };
    for again in [unseen, survivors(A)] {
        let mut desk = Desk::running(policy(Kind::Run));
        desk.at(10_650);
        assert_eq!(desk.said(unseen), []);
        assert!(desk.decider.survivors(ms(desk.now)).is_some());
        assert!(!desk.decider.has_survivors(ms(desk.now)));
        assert_eq!(desk.lock(lost(LossReason::DeadlineReached)), []);
        assert!(desk.decider.keeps_the_contender());
        assert_eq!(desk.said(again), []);
        assert!(desk.decider.has_survivors(ms(desk.now)));
        assert_eq!(desk.said(GONE), [RELEASE]);
        assert!(!desk.decider.has_survivors(ms(desk.now)));
    }
}

#[test]
fn survivors_are_given_up_by_a_word_and_then_the_lock_expires_and_is_not_released() {
    let mut desk = Desk::running(Policy {
        restart: Restart::Always,
        ..run()
    });
    assert!(
        desk.decider.give_up_survivors(ms(desk.now)).is_err(),
        "nothing to give up"
    );
    desk.lock(lost(LossReason::SessionExpired));
    desk.said(survivors(A));
    desk.decider.give_up_survivors(ms(desk.now)).unwrap();
    assert_eq!(desk.decide(), [Act::Abandon]);
    assert!(!desk.decider.keeps_the_contender());
    assert!(desk.decider.survivors(ms(desk.now)).unwrap().given_up);
    assert_eq!(desk.at(600_000), [], "nothing is started beside them");
    assert_eq!(desk.said(GONE), [CONTEND]);

    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.decider.guard_lost(true);
    assert_eq!(desk.at(60_000), [Act::RemoveLease]);
    desk.decider.give_up_survivors(ms(60_000)).unwrap();
    assert_eq!(desk.decide(), [Act::Abandon]);
    desk.decider.guard_ended(true);
    assert_eq!(desk.decide(), []);
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);
}
