//! Starts, deadlines, and what moves them.

use super::*;

#[test]
fn an_application_gets_sigterm_then_sigkill_at_the_deadlines_of_its_grant() {
    let mut run = Run::running();
    assert_eq!(run.schedule.wake_at(), Some(ms(100)));
    assert_eq!(run.at(99, Event::Tick), []);
    assert_eq!(run.at(100, Event::Tick), [Action::Terminate]);
    assert_eq!(run.schedule.wake_at(), Some(ms(200)));
    assert_eq!(run.at(200, Event::Tick), [Action::Sweep(Sweep::Kill)]);
    assert_eq!(run.at(200, ALIVE), [report(FromGuard::AtWork { token: A })]);
    assert_eq!(run.at(201, GONE), [Action::Sweep(Sweep::Kill), told_killed()]);
    assert_eq!(run.schedule.wake_at(), None);
}

#[test]
fn the_newest_grant_counts_whether_its_deadlines_are_later_or_earlier() {
    let mut run = Run::running();
    run.at(20, granted(A, false, 150, 260));
    assert_eq!(run.schedule.wake_at(), Some(ms(150)));
    run.at(30, granted(A, false, 50, 60));
    assert_eq!(run.schedule.wake_at(), Some(ms(50)));
    assert_eq!(run.at(50, Event::Tick), [Action::Terminate]);
    assert_eq!(run.at(60, Event::Tick), [Action::Sweep(Sweep::Kill)]);
}

#[test]
fn a_deadline_that_has_passed_when_it_is_told_is_kept_at_once() {
    let mut run = Run::running();
    assert_eq!(
        run.at(70, granted(A, false, 50, 60)),
        [Action::Sweep(Sweep::Kill)]
    );

    let mut run = Run::running();
    assert_eq!(run.at(55, granted(A, false, 50, 60)), [Action::Terminate]);
    assert_eq!(run.schedule.wake_at(), Some(ms(60)));

    let mut run = Run::new(Mode::Pid1, true);
    run.at(0, pausing(A, true, 100));
    assert_eq!(run.at(70, pausing(A, false, 60)), [Action::Sweep(Sweep::Stop)]);
}

#[test]
fn a_guard_that_stood_still_goes_by_the_newest_of_the_grants_that_wait_for_it() {
    let mut run = Run::running();
    assert_eq!(run.read(2, 350, grant(A, false, 200, 300)), []);
    assert_eq!(run.read(3, 350, grant(A, false, 400, 500)), []);
    assert_eq!(run.at(350, Event::Tick), []);
    assert_eq!(run.schedule.wake_at(), Some(ms(400)));
    // What is no grant comes too late to undo a deadline, and does not hide one.
    assert_eq!(run.read(4, 550, grant(A, false, 500, 540)), []);
    let signal = Event::Signal {
        signo: libc::SIGUSR1 as u8,
        to_group: false,
    };
    assert_eq!(run.at(550, signal), [Action::Sweep(Sweep::Kill)]);
}

#[test]
fn a_guard_that_stood_still_goes_by_the_newest_grant_also_behind_a_suspicion_that_has_passed() {
    let frames = [
        ToGuard::Suspect { token: A },
        ToGuard::Confirm { token: A },
        ToGuard::Forget,
    ];
    let mut run = Run::running();
    for frame in frames {
        assert_eq!(run.read_frame(350, frame), []);
    }
    assert_eq!(run.read(2, 350, grant(A, false, 400, 500)), []);
    assert_eq!(run.at(350, Event::Tick), []);
    assert_eq!(run.schedule.wake_at(), Some(ms(400)));

    // What is stopped goes on behind the grant, and not before.
    let mut run = Run::running();
    run.at(10, Event::Frame(ToGuard::Suspect { token: A }));
    run.at(11, STOPPED);
    assert_eq!(run.read_frame(350, ToGuard::Confirm { token: A }), []);
    let go_on = [Action::Sweep(Sweep::Continue)];
    assert_eq!(run.read(2, 350, grant(A, false, 400, 500)), go_on);

    // What is in doubt behind the grant is stopped.
    let mut run = Run::running();
    assert_eq!(run.read_frame(350, ToGuard::Suspect { token: A }), []);
    let stop = [Action::Sweep(Sweep::Stop)];
    assert_eq!(run.read(2, 350, grant(A, false, 400, 500)), stop);

    // Without such a grant the deadline stands.
    let mut run = Run::running();
    assert_eq!(run.read_frame(350, ToGuard::Confirm { token: A }), []);
    assert_eq!(run.at(350, Event::Tick), [Action::Sweep(Sweep::Kill)]);
}

#[test]
fn an_older_grant_changes_nothing_whenever_it_comes() {
    let mut run = Run::running();
    let late = grant(A, false, 900, 1000);
    run.granted_as(5, 10, grant(A, false, 80, 90));
    for older in [4, 5, 0, u32::MAX] {
        assert_eq!(run.granted_as(older, 20, late), []);
        assert_eq!(run.schedule.wake_at(), Some(ms(80)), "{older}");
    }
    // Nor does it keep a deadline from being looked at.
    assert_eq!(run.granted_as(4, 95, late), [Action::Sweep(Sweep::Kill)]);
}

#[test]
fn grants_are_counted_beyond_the_end_of_their_numbers() {
    let mut run = Run::running();
    run.granted_as(i32::MAX as u32, 2, grant(A, false, 100, 200));
    run.granted_as(u32::MAX - 1, 10, grant(A, false, 300, 400));
    assert_eq!(run.schedule.wake_at(), Some(ms(300)));
    run.granted_as(0, 20, grant(A, false, 50, 60));
    assert_eq!(run.schedule.wake_at(), Some(ms(50)));
}

#[test]
fn each_connection_counts_its_grants_from_the_beginning() {
    let mut run = Run::new(Mode::Pid1, true);
    run.granted_as(7, 0, grant(A, true, 100, 200));
    run.at(1, Event::Started { pid: 42 });
    run.at(2, Event::KeeperLost { returns: false });
    run.at(3, Event::KeeperConnected);
    run.granted_as(1, 4, grant(A, false, 50, 60));
    assert_eq!(run.schedule.wake_at(), Some(ms(50)));
}

#[test]
fn an_application_that_shrugged_off_sigterm_gets_it_again_before_a_later_deadline() {
    let mut run = Run::running();
    assert_eq!(run.at(100, Event::Tick), [Action::Terminate]);
    assert_eq!(run.at(120, granted(A, false, 300, 400)), []);
    assert_eq!(run.at(200, Event::Tick), []);
    assert_eq!(run.at(300, Event::Tick), [Action::Terminate]);
    // It ends because it was told to, not by itself.
    run.at(310, Event::MainExited { code: 0 });
    assert!(run.at(310, GONE).contains(&told_gone(Some(0))));
}

#[test]
fn nothing_starts_when_the_moment_for_sigterm_has_passed() {
    let mut run = Run::new(Mode::Pid1, true);
    assert_eq!(run.at(100, granted(A, true, 100, 200)), [told_gone(None)]);
    assert_eq!(run.at(100, granted(A, true, 150, 100)), [told_gone(None)]);

    let mut run = Run::running();
    assert_eq!(run.at(10, granted(B, true, 20, 30)), [Action::Sweep(Sweep::Kill)]);
    let late = report(FromGuard::Gone {
        token: B,
        code: None,
        had_sigterm: false,
    });
    assert_eq!(
        run.at(20, GONE),
        [Action::Sweep(Sweep::Kill), told_gone(None), late]
    );
}

#[test]
fn a_grant_without_start_starts_nothing() {
    let mut run = Run::new(Mode::Pid1, true);
    assert_eq!(run.at(0, granted(A, false, 100, 200)), []);
    assert_eq!(run.schedule.wake_at(), None);
}

#[test]
fn a_new_token_kills_what_runs_under_the_old_one_before_it_starts_anything() {
    let mut run = Run::running();
    assert_eq!(
        run.at(10, granted(B, true, 300, 400)),
        [Action::Sweep(Sweep::Kill)]
    );
    assert_eq!(run.at(10, ALIVE), [report(FromGuard::AtWork { token: A })]);
    run.at(11, granted(B, false, 500, 600));
    let actions = run.at(12, GONE);
    assert!(
        actions.ends_with(&[told_gone(None), Action::Start(B)]),
        "{actions:?}"
    );
    assert_eq!(run.schedule.wake_at(), Some(ms(500)));
}

#[test]
fn a_withdrawn_grant_is_said_to_be_gone_only_when_the_tree_before_it_is_gone() {
    let mut run = Run::running();
    run.at(10, granted(B, true, 300, 400));
    let revoked = run.at(11, Event::Frame(ToGuard::Revoke { token: B }));
    assert_eq!(revoked, [Action::Sweep(Sweep::Kill)], "A's tree is not gone yet");
    assert_eq!(
        run.at(12, GONE),
        [
            Action::Sweep(Sweep::Kill),
            report(FromGuard::Gone {
                token: B,
                code: None,
                had_sigterm: false
            })
        ]
    );
}

#[test]
fn stop_brings_the_end_forward_and_no_grant_moves_it_back() {
    let mut run = Run::running();
    let stop = Event::Frame(ToGuard::Stop {
        token: A,
        kill_at: ms(50),
    });
    assert_eq!(run.at(10, stop), [Action::Terminate]);
    run.at(20, granted(A, true, 900, 1000));
    assert_eq!(run.schedule.wake_at(), Some(ms(50)));
    run.at(25, granted(A, false, 30, 40));
    assert_eq!(run.schedule.wake_at(), Some(ms(40)), "but forward");
    assert_eq!(run.at(40, Event::Tick), [Action::Sweep(Sweep::Kill)]);

    let mut run = Run::running();
    run.at(
        10,
        Event::Frame(ToGuard::Stop {
            token: A,
            kill_at: ms(900),
        }),
    );
    assert_eq!(run.schedule.wake_at(), Some(ms(200)));
    assert_eq!(
        run.at(20, Event::MainExited { code: 3 }),
        [Action::Sweep(Sweep::Kill)]
    );
    assert_eq!(run.at(20, GONE), [told_gone(Some(3))]);
}

#[test]
fn the_guard_goes_before_others_for_a_deadline_and_no_longer_than_the_margin_after_it() {
    let margin = u64::try_from(KILL_ALLOWANCE.as_millis()).unwrap();
    let is_pressed = |run: &Run, at| run.schedule.is_pressed(ms(at));
    assert!(!is_pressed(&Run::new(Mode::Subreaper, false), 0));

    let mut run = Run::running();
    assert!(is_pressed(&run, 99));
    run.at(200, Event::Tick);
    run.at(200, ALIVE);
    assert!(is_pressed(&run, 200 + margin - 1));
    assert!(!is_pressed(&run, 200 + margin));

    assert!(!is_pressed(&Run::paused(), 102));

    // It goes on looking for a container that is about to start.
    let mut run = Run::new(Mode::Container, true);
    run.at(0, granted(A, true, 60_000, 60_000));
    assert!(!is_pressed(&run, 1));
    run.at(1, ALIVE);
    assert!(is_pressed(&run, 1));
}
