//! The application exits, users want it to end, the ensemble refuses.

use super::*;

fn always(on_exit: OnExit) -> Policy {
    Policy {
        restart: Restart::Always,
        on_exit,
        ..run()
    }
}

#[test]
fn the_exit_code_of_the_application_is_that_of_the_run_once_the_lock_is_released() {
    for on_exit in [OnExit::Release, OnExit::Hold] {
        let mut desk = Desk::running(Policy { on_exit, ..run() });
        assert_eq!(desk.said(exited(3)), [Act::RemoveLease, RELEASE]);
        assert_eq!(desk.at(100), []);
        assert_eq!(desk.answered(released()), [end(3)]);
    }
}

#[test]
fn a_restart_with_release_lets_the_others_go_first_and_waits_ever_longer() {
    let mut desk = Desk::waiting(always(OnExit::Release));
    for pause in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
        desk.lock(held(A, desk.now + 11_000));
        desk.said(FromGuard::Started { token: A, pid: 2 });
        assert_eq!(desk.said(exited(1)), [Act::RemoveLease, RELEASE]);
        assert_eq!(desk.answered(released()), []);
        let again_at = desk.now + pause;
        assert_eq!(desk.wake_at(), Some(ms(again_at)));
        assert_eq!(desk.at(again_at - 1), []);
        assert_eq!(desk.at(again_at), [CONTEND]);
        desk.answered(waiting(0));
    }
    desk.lock(held(A, desk.now + 11_000));
    desk.said(FromGuard::Started { token: A, pid: 2 });
    desk.now += 10_000;
    desk.said(exited(1));
    desk.answered(released());
    assert_eq!(desk.wake_at(), Some(ms(desk.now + 100)), "it ran for long enough");
}

#[test]
fn a_restart_with_hold_keeps_the_token() {
    let mut desk = Desk::running(always(OnExit::Hold));
    assert_eq!(desk.said(exited(1)), [Act::RemoveLease]);
    assert_eq!(desk.lock(held(A, 11_000)), []);
    assert_eq!(desk.wake_at(), Some(ms(100)));
    assert_eq!(desk.at(100), [Act::WriteLease(A), grant(A, true, 11_000)]);
}

#[test]
fn a_container_ends_with_its_application_and_holds_over_its_restart_if_it_is_to() {
    let finish = Act::Tell(ToGuard::Finish { code: 3 });
    let mut desk = Desk::running(policy(Kind::Wrap));
    assert_eq!(desk.said(exited(3)), [Act::RemoveLease, RELEASE]);
    assert_eq!(desk.answered(released()), [finish]);
    desk.decider.guard_lost(true);
    assert_eq!(desk.decide(), []);
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);

    let holding = Policy {
        on_exit: OnExit::Hold,
        ..policy(Kind::Wrap)
    };
    let mut desk = Desk::running(holding);
    assert_eq!(desk.said(exited(3)), [Act::RemoveLease, finish]);
    desk.decider.guard_lost(true);
    assert_eq!(
        desk.said(hello(None, false)),
        [Act::WriteLease(A), grant(A, true, 11_000)]
    );
}

#[test]
fn a_container_does_not_wait_for_an_ensemble_that_cannot_be_reached() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    assert_eq!(desk.said(exited(3)), [Act::RemoveLease, RELEASE]);
    assert_eq!(desk.wake_at(), Some(ms(5000)));
    assert_eq!(
        desk.at(5000),
        [Act::Abandon, Act::Tell(ToGuard::Finish { code: 3 })]
    );
}

#[test]
fn a_user_who_interrupts_a_waiting_run_gets_the_code_of_the_signal() {
    let mut desk = Desk::waiting(run());
    assert_eq!(desk.said(TERM), [RELEASE]);
    assert_eq!(desk.answered(released()), [end(143)]);
}

#[test]
fn a_user_who_interrupts_a_run_whose_ensemble_cannot_be_reached_is_not_kept_waiting() {
    let mut desk = Desk::new(run());
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);
    assert_eq!(desk.said(FromGuard::EndWanted { signo: 2 }), [RELEASE]);
    assert_eq!(desk.wake_at(), Some(ms(5000)));
    assert_eq!(desk.at(5000), [end(130)]);
}

#[test]
fn a_signal_to_a_running_application_is_its_own_business() {
    let mut desk = Desk::running(always(OnExit::Release));
    assert_eq!(desk.said(TERM), []);
    assert_eq!(desk.lock(held(A, 12_000)), [grant(A, false, 12_000)]);
    assert!(desk.decider.step_down_wanted(), "it still runs");
    let mut desk = Desk::running(always(OnExit::Release));
    desk.said(TERM);
    assert_eq!(desk.said(exited(0)), [Act::RemoveLease, RELEASE]);
    assert_eq!(desk.answered(released()), [end(0)], "not started again");
}

#[test]
fn a_sidecar_that_is_told_to_end_stops_the_application_and_releases_first() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.decider.end_wanted(0);
    assert_eq!(desk.decide(), [Act::RemoveLease, stop(3000)]);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.answered(released()), [end(0)]);

    let mut desk = Desk::running(policy(Kind::Signal));
    assert_eq!(desk.said(TERM), [Act::RemoveLease, stop(3000)]);
    assert_eq!(desk.said(exited(9)), [RELEASE]);
    assert_eq!(desk.answered(released()), [end(143)]);
}

#[test]
fn the_end_of_the_applications_container_is_not_that_of_the_sidecar() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    assert_eq!(desk.said(TERM), []);
    assert_eq!(desk.said(exited(143)), [Act::RemoveLease, RELEASE]);
    assert_eq!(
        desk.answered(released()),
        [Act::Tell(ToGuard::Finish { code: 143 })]
    );
}

#[test]
fn a_command_that_cannot_be_started_gives_the_lock_back_and_the_code_of_a_shell() {
    for (errno, code) in [(2, 127), (13, 126)] {
        let mut desk = Desk::waiting(always(OnExit::Hold));
        desk.lock(held(A, 11_000));
        assert_eq!(
            desk.said(FromGuard::StartFailed { token: A, errno }),
            [Act::RemoveLease, RELEASE]
        );
        assert_eq!(desk.answered(released()), [end(code)]);
    }
}

#[test]
fn wait_timeout_ends_the_wait_and_not_the_application() {
    let limited = Policy {
        wait_timeout: Some(Duration::from_secs(2)),
        ..run()
    };
    let mut desk = Desk::waiting(limited);
    assert_eq!(desk.wake_at(), Some(ms(2000)));
    assert_eq!(desk.at(1999), []);
    assert_eq!(desk.at(2000), [RELEASE]);
    assert_eq!(desk.lock(held(A, 11_000)), [], "too late");
    assert_eq!(desk.answered(released()), [Act::End(Ending::NotAcquired)]);

    assert_eq!(Desk::running(limited).at(2000), []);
}

#[test]
fn wait_timeout_zero_ends_when_somebody_is_before_us() {
    let at_once = Policy {
        wait_timeout: Some(Duration::ZERO),
        ..run()
    };
    let mut desk = Desk::new(at_once);
    desk.said(hello(None, false));
    assert_eq!(desk.answered(waiting(0)), []);
    assert_eq!(desk.lock(waiting(1)), [RELEASE]);
    assert_eq!(desk.answered(released()), [Act::End(Ending::NotAcquired)]);
}

#[test]
fn wait_timeout_zero_ends_within_the_session_timeout_when_nobody_answers() {
    let mut desk = Desk::new(Policy {
        wait_timeout: Some(Duration::ZERO),
        ..run()
    });
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);
    assert_eq!(desk.wake_at(), Some(ms(10_000)));
    assert_eq!(desk.at(10_000), [RELEASE]);
    assert_eq!(desk.at(15_000), [Act::End(Ending::NotAcquired)]);
}

#[test]
fn a_lock_that_is_refused_for_good_ends_everything_but_the_application_first() {
    let refused = Act::End(Ending::Refused);
    for kind in [Kind::Run, Kind::Wrap, Kind::Signal] {
        let mut desk = Desk::new(policy(kind));
        desk.said(hello(None, false));
        assert_eq!(desk.refused(released()), [refused], "at the first request");

        let mut desk = Desk::waiting(policy(kind));
        assert_eq!(desk.lock(released()), [refused], "while waiting");

        let mut desk = Desk::running(policy(kind));
        assert_eq!(desk.lock(lost(LossReason::Refused)), [Act::RemoveLease, REVOKE]);
        assert_eq!(desk.said(GONE), [RELEASE]);
        assert_eq!(desk.answered(released()), [refused], "while running");
    }
}

#[test]
fn sighup_ends_a_run_also_when_it_crosses_the_first_grant() {
    let mut desk = Desk::waiting(run());
    assert_eq!(desk.lock(held(A, 11_000)).len(), 2);
    desk.said(FromGuard::EndWanted { signo: 1 });
    assert_eq!(desk.said(GONE), [Act::RemoveLease, RELEASE]);
    assert_eq!(desk.answered(released()), [end(129)]);
}

#[test]
fn an_application_that_has_ended_keeps_its_code_when_the_release_is_refused() {
    let mut desk = Desk::running(run());
    assert_eq!(desk.said(exited(0)), [Act::RemoveLease, RELEASE]);
    assert_eq!(desk.refused(released()), [end(0)]);
}
