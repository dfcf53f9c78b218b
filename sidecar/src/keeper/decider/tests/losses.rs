//! The lock is lost, or the guard.

use super::*;

#[test]
fn at_the_deadline_the_guard_is_trusted_and_nothing_is_released_before_its_word() {
    let mut desk = Desk::running(run());
    assert_eq!(desk.at(7650), [Act::RemoveLease]);
    assert_eq!(desk.wake_at(), Some(ms(10_650)));
    assert_eq!(desk.at(10_650), []);
    assert_eq!(desk.wake_at(), Some(ms(10_750)));
    assert_eq!(desk.lock(lost(LossReason::DeadlineReached)), []);
    assert_eq!(desk.said(survivors(A)), []);
    assert_eq!(desk.at(60_000), []);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.answered(released()), [end(75)]);
}

#[test]
fn a_deadline_that_moves_earlier_is_told_also_when_it_has_passed_and_when_the_lock_is_lost_by_it() {
    // A server grants less time than the one before.
    let mut desk = Desk::running(run());
    assert_eq!(desk.lock(held(A, 8_000)), [grant(A, false, 8_000)]);
    desk.now = 1_000;
    assert_eq!(
        desk.lock(held(A, 1_200)),
        [Act::RemoveLease, grant(A, false, 1_350)],
        "now, since 350 ms before the end has passed"
    );
    assert_eq!(desk.at(1_100), [Act::KillGuard]);

    let mut desk = Desk::running(run());
    desk.now = 1_000;
    let lost = LockStatus {
        loss: Some(LossReason::DeadlineReached),
        ..lock(LockState::Lost, A, 900)
    };
    assert_eq!(desk.lock(lost), [Act::RemoveLease, grant(A, false, 1_350)]);
    assert_eq!(desk.said(GONE), [RELEASE]);
}

#[test]
fn an_earlier_deadline_brings_the_end_of_a_stop_forward() {
    let mut desk = Desk::running(run());
    desk.decider.step_down_wanted();
    assert_eq!(desk.decide(), [Act::RemoveLease, stop(3_000)]);
    assert_eq!(desk.lock(held(A, 2_000)), [grant(A, false, 2_000)]);
    assert_eq!(desk.wake_at(), Some(ms(1_650)));
    assert_eq!(desk.lock(held(A, 12_000)), [], "and not back");
    assert_eq!(desk.lock(held(A, 1_900)), [grant(A, false, 1_900)]);
}

#[test]
fn a_guard_that_comes_back_after_the_deadline_is_told_to_act_now() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.decider.guard_lost(true);
    desk.decide();
    desk.now = 1_000;
    let lost = LockStatus {
        loss: Some(LossReason::DeadlineReached),
        ..lock(LockState::Lost, A, 900)
    };
    // It is the same lock still: the release is not asked for before the guard has spoken.
    desk.decider.lock_changed(lost, ms(1_000));
    assert_eq!(desk.said(hello(Some(A), false)), [grant(A, false, 1_350)]);
}

#[test]
fn a_guard_that_says_nothing_after_its_deadline_is_killed_once() {
    for kind in [Kind::Run, Kind::Signal] {
        let mut desk = Desk::running(policy(kind));
        desk.at(10_650);
        desk.lock(lost(LossReason::DeadlineReached));
        assert_eq!(desk.at(10_749), [], "{kind:?}");
        assert_eq!(desk.wake_at(), Some(ms(10_750)), "{kind:?}");
        assert_eq!(desk.at(10_750), [Act::KillGuard], "{kind:?}");
        assert_eq!(desk.at(10_751), [], "{kind:?}");
        assert_eq!(desk.at(60_000), [], "{kind:?}");
    }
}

#[test]
fn a_guard_that_is_at_work_after_its_deadline_is_not_killed_for_that() {
    let mut desk = Desk::running(run());
    desk.at(10_650);
    desk.lock(lost(LossReason::DeadlineReached));
    for told in [10_660, 10_680, 10_700, 10_740] {
        desk.now = told;
        assert_eq!(desk.said(FromGuard::AtWork { token: A }), []);
        assert_eq!(desk.wake_at(), Some(ms(told + 100)));
    }
    // One that then falls silent is stopped, or starved.
    assert_eq!(desk.at(10_839), []);
    assert_eq!(desk.at(10_840), [Act::KillGuard]);
}

#[test]
fn a_guard_that_does_not_carry_out_a_revocation_or_a_stop_is_killed_too() {
    let mut desk = Desk::running(run());
    desk.at(1_000);
    assert_eq!(
        desk.lock(lost(LossReason::ContenderDeleted)),
        [Act::RemoveLease, REVOKE]
    );
    assert_eq!(desk.at(1_100), [Act::KillGuard]);
}

#[test]
fn a_guard_that_is_late_for_a_wish_has_two_seconds_while_the_lock_is_held_and_a_tenth_after_that() {
    let stopping = |end: u64| {
        let mut desk = Desk::running(run());
        desk.decider.step_down_wanted();
        assert_eq!(desk.decide(), [Act::RemoveLease, stop(3_000)]);
        assert_eq!(desk.at(3_000), []);
        assert_eq!(desk.lock(held(A, end)), []);
        desk
    };
    let mut desk = stopping(16_000);
    assert_eq!(desk.wake_at(), Some(ms(5_000)));
    assert_eq!(desk.at(4_999), []);
    assert_eq!(desk.at(5_000), [Act::KillGuard]);
    assert_eq!(desk.at(60_000), []);

    let mut desk = stopping(4_350);
    assert_eq!(
        desk.wake_at(),
        Some(ms(4_000)),
        "350 ms before the end of the lease"
    );
    assert_eq!(desk.at(4_000), []);
    assert_eq!(desk.wake_at(), Some(ms(4_100)));
    assert_eq!(desk.at(4_099), []);
    assert_eq!(desk.at(4_100), [Act::KillGuard]);

    let mut desk = stopping(16_000);
    desk.now = 4_000;
    assert_eq!(desk.lock(lost(LossReason::SessionExpired)), []);
    assert_eq!(desk.at(4_099), []);
    assert_eq!(desk.at(4_100), [Act::KillGuard]);

    let mut desk = stopping(16_000);
    desk.now = 4_900;
    assert_eq!(desk.said(FromGuard::AtWork { token: A }), []);
    assert_eq!(desk.wake_at(), Some(ms(6_900)), "it is at work");
    assert_eq!(desk.said(GONE), [RELEASE]);
}

#[test]
fn a_keeper_that_was_stopped_itself_hears_the_guard_out_before_it_judges() {
    let mut desk = Desk::running(run());
    assert_eq!(desk.at(60_000), [Act::RemoveLease]);
    assert_eq!(desk.at(60_099), []);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.at(60_100), []);
}

#[test]
fn a_guard_in_a_container_is_never_killed() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.at(10_650);
    desk.lock(lost(LossReason::DeadlineReached));
    assert_eq!(desk.at(60_000), []);
}

#[test]
fn a_loss_that_the_guard_cannot_know_is_told_at_once() {
    for reason in [LossReason::SessionExpired, LossReason::ContenderDeleted] {
        let mut desk = Desk::running(run());
        assert_eq!(desk.lock(lost(reason)), [Act::RemoveLease, REVOKE], "{reason:?}");
        assert_eq!(desk.said(GONE), [RELEASE]);
        assert_eq!(desk.answered(released()), [end(75)]);
    }
}

#[test]
fn a_loss_ends_a_run_that_starts_nothing_again_and_others_queue_again() {
    let after = |policy: Policy| {
        let mut desk = Desk::running(policy);
        desk.lock(lost(LossReason::SessionExpired));
        assert_eq!(desk.said(GONE), [RELEASE]);
        desk.answered(released())
    };
    assert_eq!(after(run()), [end(75)]);
    let again = Policy {
        restart: Restart::Always,
        ..run()
    };
    assert_eq!(after(again), [CONTEND]);
    assert_eq!(after(policy(Kind::Wrap)), [CONTEND]);
    assert_eq!(after(policy(Kind::Signal)), [end(88)]);
    // It was to be paused, but it was killed: never means never.
    let pausing = Policy {
        on_loss: OnLoss::Pause,
        ..run()
    };
    assert_eq!(after(pausing), [end(75)]);
}

#[test]
fn an_application_that_never_started_is_not_lost_with_the_lock() {
    let mut desk = Desk::waiting(run());
    desk.lock(held(A, 3000));
    assert_eq!(desk.lock(lost(LossReason::DeadlineReached)), [RELEASE]);
    assert_eq!(desk.answered(released()), [CONTEND]);

    let mut desk = Desk::waiting(run());
    desk.lock(held(A, 11_000));
    assert_eq!(
        desk.lock(lost(LossReason::SessionExpired)),
        [Act::RemoveLease, REVOKE]
    );
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.answered(released()), [CONTEND]);
}

#[test]
fn a_paused_application_goes_on_under_a_new_token_only() {
    for kind in [Kind::Run, Kind::Wrap, Kind::Signal] {
        let mut desk = Desk::running(Policy {
            on_loss: OnLoss::Pause,
            ..policy(kind)
        });
        assert_eq!(desk.at(10_650), [Act::RemoveLease]);
        // The lock came back after the deadline: too late for this token.
        assert_eq!(desk.lock(held(A, 14_000)), []);
        assert_eq!(desk.said(FromGuard::Paused { token: A }), [RELEASE]);
        assert_eq!(desk.answered(released()), [CONTEND]);
        assert_eq!(desk.answered(waiting(0)), []);
        let again = desk.lock(held(B, 22_000));
        assert!(
            matches!(
                again[..],
                [
                    Act::WriteLease(B),
                    Act::Tell(ToGuard::Grant(Grant {
                        token: B,
                        start: true,
                        pause: true,
                        ..
                    }))
                ]
            ),
            "{kind:?}: {again:?}"
        );
    }
}

#[test]
fn a_pause_that_was_asked_for_before_is_not_taken_for_the_answer_to_a_stop() {
    let mut desk = Desk::running(Policy {
        on_loss: OnLoss::Pause,
        ..run()
    });
    desk.decider.step_down_wanted();
    desk.decide();
    assert_eq!(desk.said(FromGuard::Paused { token: A }), []);
    assert_eq!(desk.said(GONE), [RELEASE]);
}

#[test]
fn what_is_out_of_sight_is_abandoned_on_a_loss_and_never_released() {
    for on_exit in [OnExit::Release, OnExit::Hold] {
        let mut desk = Desk::running(Policy {
            on_exit,
            ..policy(Kind::Wrap)
        });
        desk.decider.guard_lost(false);
        assert_eq!(desk.decide(), [Act::RemoveLease]);
        assert_eq!(desk.lock(lost(LossReason::SessionExpired)), [Act::Abandon]);
        assert_eq!(desk.at(60_000), []);
        // It was there all the time, and still runs: others may hold by now.
        assert_eq!(desk.said(hello(Some(A), false)), [REVOKE]);
        assert_eq!(desk.said(GONE), [CONTEND]);
    }
}

#[test]
fn a_container_that_does_not_come_back_keeps_the_lock_only_with_on_exit_hold() {
    let lose_sight = |on_exit| {
        let mut desk = Desk::running(Policy {
            on_exit,
            ..policy(Kind::Wrap)
        });
        desk.now = 1000;
        desk.lock(held(A, 12_000));
        desk.decider.guard_lost(false);
        desk.decide();
        desk.now = 3000;
        desk.lock(held(A, 14_000));
        desk
    };
    let mut desk = lose_sight(OnExit::Release);
    assert_eq!(desk.wake_at(), Some(ms(11_650)));
    desk.lock(held(A, 22_000));
    assert_eq!(desk.at(11_650), [Act::Abandon]);
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);

    let mut desk = lose_sight(OnExit::Release);
    assert_eq!(
        desk.said(hello(None, false)),
        [RELEASE],
        "it ended with its container"
    );
    assert_eq!(desk.answered(released()), [CONTEND]);

    let mut desk = lose_sight(OnExit::Hold);
    desk.lock(held(A, 22_000));
    assert_eq!(desk.at(11_650), []);
    assert_eq!(desk.said(hello(None, false)).len(), 2);
}

#[test]
fn a_lock_that_falls_to_a_pod_without_its_container_goes_on_to_the_next() {
    let mut desk = Desk::waiting(policy(Kind::Wrap));
    desk.decider.guard_lost(false);
    assert_eq!(desk.decide(), []);
    assert_eq!(desk.lock(held(A, 11_000)), [RELEASE]);
    assert_eq!(desk.answered(released()), []);
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);
}
