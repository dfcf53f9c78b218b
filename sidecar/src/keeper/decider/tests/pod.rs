//! The pod is ending; the application's hook after the start fails; what probes may look at.

use super::*;

fn wrap() -> Policy {
    policy(Kind::Wrap)
}

/// The pod's grace is 30 s, of which 2 s are for guard and release: gone by 28 s, asked to end 3 s before.
fn ending(mut desk: Desk) -> Desk {
    desk.decider.pod_ends(ms(desk.now)).unwrap();
    desk
}

#[test]
fn an_application_that_ends_with_its_pod_gives_the_lock_back_at_once_and_is_not_started_again() {
    for on_exit in [OnExit::Release, OnExit::Hold] {
        let mut desk = ending(Desk::running(Policy { on_exit, ..wrap() }));
        assert_eq!(desk.decide(), [], "it has its time");
        assert_eq!(desk.said(exited(0)), [Act::RemoveLease, RELEASE]);
        assert_eq!(
            desk.answered(released()),
            [Act::Tell(ToGuard::Finish { code: 0 })]
        );
        desk.decider.guard_lost(true);
        assert_eq!(
            desk.said(hello(None, false)),
            [],
            "another container of the same pod"
        );
        desk.decider.end_wanted(0);
        assert_eq!(desk.decide(), [end(0)]);
    }
}

#[test]
fn an_application_that_does_not_end_with_its_pod_is_stopped_before_the_grace_is_over() {
    let mut desk = ending(Desk::running(wrap()));
    assert_eq!(desk.lock(held(A, 60_000)), [grant(A, false, 60_000)]);
    assert_eq!(desk.wake_at(), Some(ms(25_000)));
    assert_eq!(desk.at(24_999), []);
    assert_eq!(desk.at(25_000), [Act::RemoveLease, stop(28_000)]);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.answered(released()), [], "released, and not queued again");
}

#[test]
fn a_grace_that_is_shorter_than_the_stop_grace_leaves_what_it_can() {
    let short = Policy {
        termination_grace: Some(Duration::from_secs(2)),
        ..wrap()
    };
    let mut desk = ending(Desk::running(short));
    assert_eq!(desk.decide(), [Act::RemoveLease, stop(1_500)]);
}

#[test]
fn a_sidecar_that_is_ended_with_the_last_of_the_grace_does_not_give_more_than_that() {
    let mut desk = ending(Desk::running(wrap()));
    desk.now = 27_500;
    desk.decider.end_wanted(0);
    desk.decider.lock_changed(held(A, 60_000), ms(27_500));
    assert_eq!(desk.decide(), [Act::RemoveLease, stop(28_000)]);
}

#[test]
fn a_sidecar_that_is_ended_while_nobody_knows_what_runs_leaves_the_lock_to_expire() {
    let mut desk = ending(Desk::running(wrap()));
    desk.decider.guard_lost(true);
    assert_eq!(desk.decide(), [Act::RemoveLease]);
    desk.decider.end_wanted(0);
    // No release in between.
    assert_eq!(desk.decide(), [end(0)]);
}

#[test]
fn a_sidecar_that_is_ended_during_the_release_after_an_exit_ends_with_its_own_code() {
    let mut desk = ending(Desk::running(wrap()));
    assert_eq!(desk.said(exited(7)), [Act::RemoveLease, RELEASE]);
    // A guard that has had SIGTERM does not wait for the release.
    desk.decider.guard_lost(true);
    desk.decider.end_wanted(0);
    assert_eq!(desk.decide(), []);
    assert_eq!(desk.answered(released()), [end(0)]);
}

#[test]
fn a_standby_leaves_the_queue_as_soon_as_its_pod_is_ending() {
    let mut desk = ending(Desk::waiting(wrap()));
    assert_eq!(desk.decide(), [RELEASE]);
    assert_eq!(desk.answered(released()), []);
    desk.decider.guard_lost(true);
    assert_eq!(desk.decide(), []);

    let mut desk = Desk::new(wrap());
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);
    let mut desk = ending(desk);
    assert_eq!(desk.decide(), [RELEASE], "also before it is in the queue");
}

#[test]
fn a_container_that_is_guarded_from_outside_is_not_gated_anew_in_a_pod_that_ends() {
    let mut desk = ending(Desk::running(policy(Kind::Signal)));
    desk.lock(held(A, 60_000));
    assert_eq!(desk.at(25_000), [Act::RemoveLease, stop(28_000)]);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(desk.answered(released()), [], "it ends by its signal");
}

#[test]
fn a_run_is_none_of_a_pod() {
    let mut desk = Desk::running(run());
    assert!(desk.decider.pod_ends(ms(0)).is_err());
    assert_eq!(desk.at(5_000), [], "and goes on");
}

#[test]
fn a_hook_that_fails_after_the_start_ends_the_container() {
    let mut desk = Desk::running(wrap());
    desk.decider.post_start_failed();
    assert_eq!(desk.decide(), [Act::RemoveLease, stop(3_000)]);
    assert_eq!(desk.said(GONE), [RELEASE]);
    assert_eq!(
        desk.answered(released()),
        [Act::Tell(ToGuard::Finish { code: 1 })]
    );
    // One that comes late is about nothing.
    desk.decider.post_start_failed();
    desk.decider.guard_lost(true);
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);
}

#[test]
fn probes_see_an_application_while_it_runs_and_is_left_to() {
    let pausing = Policy {
        on_loss: OnLoss::Pause,
        on_suspect: OnSuspect::Pause,
        ..wrap()
    };
    let mut desk = Desk::waiting(pausing);
    assert_eq!(desk.decider.running(), None, "in standby");
    desk.lock(held(A, 11_000));
    assert_eq!(desk.decider.running(), None, "not started yet");
    desk.now = 10;
    desk.said(FromGuard::Started { token: A, pid: 2 });
    let first = desk.decider.running().unwrap();
    assert_eq!((first.start, first.since), (1, ms(10)));
    desk.lock(lock(LockState::Suspended, A, 11_000));
    assert_eq!(desk.decider.running(), None, "stopped on suspicion");
    desk.lock(held(A, 11_000));
    assert_eq!(desk.decider.running(), Some(first));

    desk.said(FromGuard::Paused { token: A });
    assert_eq!(desk.decider.running(), None, "paused");
    desk.answered(released());
    desk.answered(waiting(0));
    desk.lock(held(B, 30_000));
    desk.said(FromGuard::Started { token: B, pid: 2 });
    assert_eq!(
        desk.decider.running().unwrap().start,
        1,
        "the same process goes on"
    );

    desk.said(FromGuard::Gone {
        token: B,
        code: None,
        had_sigterm: false,
    });
    assert_eq!(desk.decider.running(), None);
    desk.answered(released());
    desk.answered(waiting(0));
    desk.lock(held(B, 50_000));
    desk.said(FromGuard::Started { token: B, pid: 9 });
    assert_eq!(desk.decider.running().unwrap().start, 2);
}

#[test]
fn an_application_in_a_new_container_was_started_anew_whatever_its_process_number() {
    let mut desk = Desk::running(wrap());
    desk.said(exited(1));
    desk.answered(released());
    desk.decider.guard_lost(true);
    desk.said(hello(None, false));
    desk.answered(waiting(0));
    desk.lock(held(B, 30_000));
    desk.said(FromGuard::Started { token: B, pid: 2 });
    assert_eq!(desk.decider.running().unwrap().start, 2);

    // Killed with its container, without a last word.
    desk.decider.guard_lost(true);
    desk.decider.guard_ended(true);
    desk.said(hello(None, false));
    desk.answered(released());
    desk.answered(waiting(0));
    let next = FencingToken(9);
    desk.lock(held(next, 60_000));
    desk.said(FromGuard::Started { token: next, pid: 2 });
    assert_eq!(desk.decider.running().unwrap().start, 3);
}

#[test]
fn nothing_is_started_in_a_pod_that_ends_though_the_lock_is_held() {
    let mut desk = Desk::waiting(policy(Kind::Wrap));
    desk.decider.pod_ends(ms(0)).expect("it is in a pod");
    assert_eq!(desk.lock(held(A, 11_000)), [RELEASE]);
}
