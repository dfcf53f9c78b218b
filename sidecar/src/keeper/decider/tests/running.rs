//! From the first grant to a step down.

use super::*;

#[test]
fn the_application_starts_when_the_lock_is_held_and_the_lease_file_is_there_first() {
    for kind in [Kind::Run, Kind::Wrap, Kind::Signal] {
        let mut desk = Desk::waiting(policy(kind));
        assert_eq!(
            desk.lock(held(A, 11_000)),
            [Act::WriteLease(A), grant(A, true, 11_000)],
            "{kind:?}"
        );
    }
}

#[test]
fn nobody_queues_for_an_application_that_has_no_guard() {
    for kind in [Kind::Run, Kind::Wrap, Kind::Signal] {
        assert_eq!(Desk::new(policy(kind)).at(1), [], "{kind:?}");
    }
}

#[test]
fn a_renewal_moves_the_deadlines_and_starts_nothing_a_second_time() {
    let mut desk = Desk::waiting(run());
    desk.lock(held(A, 11_000));
    desk.now = 2000;
    // Whether it has started is not known yet; it may have exited already.
    assert_eq!(desk.lock(held(A, 13_000)), [grant(A, false, 13_000)]);
    assert_eq!(desk.lock(held(A, 13_000)), []);
}

#[test]
fn nothing_starts_that_would_be_stopped_at_once() {
    let mut desk = Desk::waiting(run());
    assert_eq!(desk.lock(held(A, 3350)), []);
    assert_eq!(
        desk.lock(held(A, 3351)),
        [Act::WriteLease(A), grant(A, true, 3351)]
    );
    // The guard found it too late, and is not asked again before the next renewal, which makes up for it.
    assert_eq!(desk.said(GONE), [Act::RemoveLease]);
    assert_eq!(desk.lock(held(A, 3351)), []);
    desk.now = 5;
    assert_eq!(
        desk.lock(held(A, 9000)),
        [Act::WriteLease(A), grant(A, true, 9000)]
    );
}

#[test]
fn the_lease_file_goes_before_the_guards_sigterm_and_comes_back_with_a_renewal() {
    let mut desk = Desk::running(policy(Kind::Signal));
    assert_eq!(desk.wake_at(), Some(ms(7650)));
    assert_eq!(desk.at(7650), [Act::RemoveLease]);
    assert_eq!(
        desk.lock(held(A, 15_000)),
        [Act::WriteLease(A), grant(A, false, 15_000)]
    );
}

#[test]
fn a_lease_file_that_a_guard_has_removed_is_back_with_the_next_renewal() {
    let mut desk = Desk::running(policy(Kind::Signal));
    assert_eq!(
        desk.lock(held(A, 15_000)),
        [Act::WriteLease(A), grant(A, false, 15_000)]
    );
    assert_eq!(desk.at(1), [], "nothing has changed");
    // In other modes only the keeper removes it.
    let mut desk = Desk::running(policy(Kind::Wrap));
    assert_eq!(desk.lock(held(A, 15_000)), [grant(A, false, 15_000)]);
}

#[test]
fn a_container_that_ends_by_itself_gives_the_lock_to_the_next_pod_or_keeps_it_for_its_restart() {
    let ended = FromGuard::Exited { token: A, code: 0 };
    let mut desk = Desk::running(policy(Kind::Signal));
    assert_eq!(desk.said(ended), [Act::RemoveLease, RELEASE]);
    assert_eq!(desk.answered(released()), []);
    assert_eq!(desk.at(100), [CONTEND]);

    let mut desk = Desk::running(Policy {
        on_exit: OnExit::Hold,
        ..policy(Kind::Signal)
    });
    assert_eq!(desk.said(ended), [Act::WriteLease(A), grant(A, true, 11_000)]);
}

#[test]
fn what_a_keeper_before_us_started_is_told_to_stop_and_nothing_is_asked_before_it_is_gone() {
    let mut desk = Desk::new(policy(Kind::Wrap));
    assert_eq!(desk.said(hello(Some(A), false)), [stop(3000)]);
    assert_eq!(desk.at(3000), []);
    assert_eq!(desk.said(GONE), [CONTEND]);

    let mut desk = Desk::new(Policy {
        on_loss: OnLoss::Pause,
        ..policy(Kind::Wrap)
    });
    assert_eq!(
        desk.said(hello(Some(A), false)),
        [],
        "the guard pauses it at its deadline"
    );
    assert_eq!(desk.said(FromGuard::Paused { token: A }), [CONTEND]);
    assert_eq!(desk.answered(waiting(0)), []);
    assert_eq!(desk.lock(held(B, 11_000)).len(), 2);
}

#[test]
fn frames_about_an_older_token_change_nothing() {
    let mut desk = Desk::running(run());
    for frame in [
        FromGuard::Gone {
            token: B,
            code: None,
            had_sigterm: false,
        },
        FromGuard::Exited { token: B, code: 0 },
        FromGuard::Paused { token: B },
        survivors(B),
        FromGuard::StartFailed { token: B, errno: 2 },
    ] {
        assert_eq!(desk.said(frame), []);
        assert_eq!(desk.decider.application.state().token(), Some(A));
        assert!(matches!(desk.decider.application.state(), App::Granted { .. }));
    }
}

#[test]
fn a_guard_that_comes_back_goes_on_under_its_token_awake() {
    let mut desk = Desk::running(Policy {
        on_suspect: OnSuspect::Pause,
        ..policy(Kind::Wrap)
    });
    desk.lock(lock(LockState::Suspended, A, 11_000));
    desk.decider.guard_lost(false);
    assert_eq!(desk.decide(), [Act::RemoveLease]);
    desk.lock(held(A, 11_000));
    assert_eq!(
        desk.said(hello(Some(A), false)),
        [
            Act::WriteLease(A),
            grant(A, false, 11_000),
            Act::Tell(ToGuard::Confirm { token: A })
        ]
    );
}

#[test]
fn a_suspicion_stops_the_application_until_it_is_cleared_and_starts_none() {
    let pausing = Policy {
        on_suspect: OnSuspect::Pause,
        ..run()
    };
    let mut desk = Desk::running(pausing);
    assert_eq!(
        desk.lock(lock(LockState::Suspended, A, 11_000)),
        [Act::Tell(ToGuard::Suspect { token: A })]
    );
    assert_eq!(
        desk.lock(held(A, 11_000)),
        [Act::Tell(ToGuard::Confirm { token: A })]
    );
    let mut desk = Desk::waiting(pausing);
    assert_eq!(desk.lock(lock(LockState::Suspended, A, 11_000)), []);

    let mut desk = Desk::running(run());
    assert_eq!(desk.lock(lock(LockState::Suspended, A, 11_000)), []);
}

#[test]
fn the_lock_delay_is_waited_for_after_an_unclean_predecessor_only() {
    let patient = Policy {
        lock_delay: Duration::from_secs(5),
        ..run()
    };
    let unclean = |end| LockStatus {
        predecessor_unclean: true,
        ..held(A, end)
    };
    let mut desk = Desk::waiting(patient);
    desk.now = 100;
    assert_eq!(desk.lock(unclean(11_000)), []);
    assert_eq!(desk.wake_at(), Some(ms(5100)));
    assert_eq!(desk.lock(unclean(15_000)), []);
    assert_eq!(desk.at(5100), [Act::WriteLease(A), grant(A, true, 15_000)]);

    assert_eq!(Desk::waiting(patient).lock(held(A, 11_000)).len(), 2);
}

#[test]
fn who_has_to_release_within_the_lock_delay_does_not_say_that_it_has_waited() {
    let patient = Policy {
        lock_delay: Duration::from_secs(5),
        ..run()
    };
    let unclean = |end| LockStatus {
        predecessor_unclean: true,
        ..held(A, end)
    };
    let mut desk = Desk::waiting(patient);
    desk.now = 100;
    assert_eq!(desk.lock(unclean(11_000)), []);
    assert_eq!(desk.decider.waited_under(ms(5099)), None);
    assert_eq!(desk.decider.waited_under(ms(5100)), Some(A));
    assert_eq!(
        desk.decider.waited_under(ms(11_000)),
        None,
        "the holder is not known"
    );

    desk.now = 3000;
    assert!(desk.decider.step_down_wanted());
    assert_eq!(desk.decide(), [RELEASE]);
    assert_eq!(desk.decider.waited_under(ms(3000)), None);
    assert_eq!(desk.answered(released()), [Act::AnswerStepDown, CONTEND]);
    assert_eq!(desk.decider.waited_under(ms(9000)), None);

    // Without a delay it has not waited, however long it has held.
    let mut desk = Desk::waiting(run());
    desk.lock(unclean(11_000));
    assert_eq!(desk.decider.waited_under(ms(10_000)), None);
}

#[test]
fn a_step_down_is_answered_when_the_lock_is_released_and_not_before() {
    let mut desk = Desk::running(run());
    assert!(desk.decider.step_down_wanted());
    assert_eq!(desk.decide(), [Act::RemoveLease, stop(3000)]);
    assert_eq!(desk.lock(held(A, 13_000)), []);
    assert_eq!(desk.said(survivors(A)), []);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.lock(lock(LockState::Releasing, A, 0)), []);
    assert_eq!(desk.answered(released()), [Act::AnswerStepDown, CONTEND]);
}

#[test]
fn a_yield_request_hands_the_lock_over_even_if_it_is_withdrawn_meanwhile() {
    let asked = LockStatus {
        yield_requested: true,
        ..held(A, 11_000)
    };
    let mut desk = Desk::running(run());
    assert_eq!(desk.lock(asked.clone()), [Act::RemoveLease, stop(3000)]);
    assert_eq!(desk.lock(held(A, 11_000)), []);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.answered(released()), [CONTEND]);

    let mut desk = Desk::running(policy(Kind::Signal));
    assert_eq!(desk.lock(asked), [Act::RemoveLease, stop(3000)]);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.answered(released()), [end(88)]);
}

#[test]
fn a_step_down_is_refused_when_there_is_nothing_to_hand_over() {
    let mut desk = Desk::new(run());
    assert!(!desk.decider.step_down_wanted());
    let mut desk = Desk::waiting(run());
    desk.said(TERM);
    assert!(!desk.decider.step_down_wanted());
}

#[test]
fn a_stop_shortly_before_the_deadline_does_not_outlast_it() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.at(9_000);
    assert!(desk.decider.step_down_wanted());
    assert_eq!(desk.decide(), [stop(10_650)]);
}

#[test]
fn what_a_keeper_before_us_started_gets_no_grant_under_a_token_of_ours() {
    let mut desk = Desk::waiting(Policy {
        on_exit: OnExit::Hold,
        ..policy(Kind::Wrap)
    });
    desk.decider.guard_lost(false);
    assert_eq!(desk.lock(held(B, 11_000)), []);
    assert_eq!(desk.said(hello(Some(A), false)), [stop(3_000)]);
}
