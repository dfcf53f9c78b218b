//! How a guard learns that its tree is gone, and what it ends with.

use super::*;
use crate::guard::schedule::exit::EXIT_REFUSED;
use crate::link::protocol::Refusal;

#[test]
fn losing_the_keeper_changes_nothing_before_the_deadline() {
    let mut run = Run::running();
    assert_eq!(run.at(10, Event::KeeperLost { returns: false }), []);
    assert_eq!(run.at(100, Event::Tick), [Action::Terminate]);
    assert_eq!(run.at(200, Event::Tick), [Action::Sweep(Sweep::Kill)]);
    assert_eq!(run.at(200, GONE), [told_killed(), Action::Exit(EXIT_LOST)]);
    assert_eq!(
        Run::new(Mode::Subreaper, false).at(1, Event::KeeperLost { returns: false }),
        [Action::Exit(EXIT_SOFTWARE)]
    );
    assert_eq!(
        Run::new(Mode::Pid1, true).at(1, Event::KeeperLost { returns: false }),
        []
    );
}

#[test]
fn the_exit_code_of_the_application_is_passed_on_when_there_is_no_keeper_to_ask() {
    for (mode, reconnects) in [(Mode::Subreaper, false), (Mode::Pid1, true)] {
        let mut run = Run::new(mode, reconnects);
        run.at(0, granted(A, true, 100, 200));
        run.at(1, Event::KeeperLost { returns: false });
        run.at(2, Event::MainExited { code: 3 });
        assert!(run.at(2, GONE).ends_with(&[Action::Exit(3)]));

        let mut run = Run::new(mode, reconnects);
        run.at(0, granted(A, true, 100, 200));
        run.at(2, Event::MainExited { code: 3 });
        assert_eq!(run.at(2, GONE), [report(FromGuard::Exited { token: A, code: 3 })]);
        assert_eq!(
            run.at(3, Event::Frame(ToGuard::Finish { code: 9 })),
            [Action::Exit(9)]
        );
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_reported_with_its_errno() {
    let mut run = Run::new(Mode::Subreaper, false);
    run.at(0, granted(A, true, 100, 200));
    run.at(1, Event::StartFailed { errno: 2 });
    assert_eq!(
        run.at(1, GONE),
        [report(FromGuard::StartFailed { token: A, errno: 2 })]
    );
}

#[test]
fn all_say_that_something_outlives_sigkill_before_a_keeper_takes_them_for_dead_and_pid_1_ends_for_it() {
    let survivors = Action::ReportSurvivors(A);
    let mut run = Run::new(Mode::Pid1, true);
    run.at(0, granted(A, true, 100, 200));
    run.at(10, Event::Frame(ToGuard::Revoke { token: A }));
    assert_eq!(run.at(10, ALIVE), []);
    assert_eq!(
        run.at(110, ALIVE),
        [Action::Sweep(Sweep::Kill), survivors, Action::Exit(EXIT_LOST)]
    );

    let mut run = Run::running();
    run.at(10, Event::Frame(ToGuard::Revoke { token: A }));
    // A keeper that is its child hears at once, and then again and again, that it is at work.
    let killing = report(FromGuard::AtWork { token: A });
    assert_eq!(run.at(10, ALIVE), [killing]);
    assert_eq!(run.at(29, ALIVE), [Action::Sweep(Sweep::Kill)]);
    for told in [30, 50, 70, 90] {
        assert_eq!(run.at(told, ALIVE), [Action::Sweep(Sweep::Kill), killing]);
    }
    assert_eq!(run.at(110, ALIVE), [Action::Sweep(Sweep::Kill), survivors]);
    assert_eq!(run.at(111, ALIVE), [Action::Sweep(Sweep::Kill)]);
    assert_eq!(run.schedule.wake_at(), Some(ms(161)));
    // Their number may have changed since.
    assert_eq!(run.at(5110, ALIVE), [Action::Sweep(Sweep::Kill), survivors]);
    assert!(run.at(5161, GONE).contains(&told_gone(None)));
}

#[test]
fn pid_1_waits_for_two_seconds_while_nobody_else_can_get_the_lock_before_it_ends_for_what_outlives_sigkill() {
    let granted_until = |kill_at: u64| {
        let mut run = Run::new(Mode::Pid1, true);
        run.at(0, granted(A, true, kill_at, kill_at));
        run.at(1, Event::Started { pid: 42 });
        run
    };
    let stopped = |lease: u64| {
        let mut run = granted_until(lease);
        let kill_at = ms(20);
        run.at(10, Event::Frame(ToGuard::Stop { token: A, kill_at }));
        assert_eq!(run.at(20, Event::Tick), [Action::Sweep(Sweep::Kill)]);
        run
    };
    let ends = |run: &mut Run, at: u64| run.at(at, ALIVE).contains(&Action::Exit(EXIT_LOST));
    // Counted from SIGKILL; by the lease; and at least as long as without one.
    for (lease, end) in [(10_000, 2_020), (1_000, 1_000), (60, 120)] {
        let mut run = stopped(lease);
        assert!(!ends(&mut run, end - 1), "{lease}");
        assert!(ends(&mut run, end), "{lease}");
    }
    // The lock is lost meanwhile.
    let mut run = stopped(10_000);
    run.at(500, Event::Frame(ToGuard::Revoke { token: A }));
    assert!(ends(&mut run, 501));
    // A server grants less time than the one before.
    let mut run = stopped(10_000);
    run.at(500, granted(A, false, 600, 700));
    assert!(!ends(&mut run, 699));
    assert!(ends(&mut run, 700));
    // The main process has ended by itself.
    let mut run = granted_until(10_000);
    run.at(10, Event::MainExited { code: 3 });
    assert!(!ends(&mut run, 2_009));
    assert!(ends(&mut run, 2_010));
}

#[test]
fn a_container_without_the_lock_is_killed_whenever_something_appears_in_it() {
    let mut run = Run::new(Mode::Container, false);
    run.at(0, GONE);
    for wait in [80, 160, 200, 200] {
        let now = run.schedule.wake_at().expect("a scan").as_nanos() / 1_000_000;
        assert_eq!(run.at(now, Event::Tick), [Action::Clear]);
        run.at(now, GONE);
        assert!(run.schedule.wake_at() <= Some(ms(now + wait)), "{wait}");
    }
    let now = run.schedule.wake_at().expect("a scan").as_nanos() / 1_000_000;
    run.at(now, Event::Tick);
    run.at(now, ALIVE);
    assert_eq!(run.schedule.wake_at(), Some(ms(now + 20)));

    assert_eq!(run.at(now + 1, granted(A, true, 9000, 9100)), [Action::Start(A)]);
    assert_eq!(run.at(now + 2, ALIVE), []);
}

#[test]
fn until_nothing_is_left_of_the_time_before_it_a_guard_kills_what_may_be_of_the_container_too() {
    let mut run = Run::new(Mode::Container, false);
    for (now, sight) in [(0, ALIVE), (20, ALIVE), (40, GONE)] {
        assert_eq!(
            run.at(now, Event::Tick),
            if now == 0 {
                vec![]
            } else {
                vec![Action::Sweep(Sweep::Kill)]
            }
        );
        run.at(now, sight);
    }
    assert_eq!(run.at(80, Event::Tick), [Action::Clear]);

    // What it ran itself it has seen to be gone.
    let mut run = Run::new(Mode::Container, false);
    run.at(0, granted(A, true, 100, 200));
    run.at(1, Event::Started { pid: 0 });
    run.at(200, Event::Tick);
    run.at(200, GONE);
    assert_eq!(run.at(220, Event::Tick), [Action::Clear]);
}

#[test]
fn nobody_else_starts_a_container_that_is_stopped_at_its_deadline() {
    let mut run = Run::new(Mode::Container, false);
    run.at(0, granted(A, true, 30, 40));
    run.at(10, Event::KeeperLost { returns: false });
    assert_eq!(run.at(30, Event::Tick), [Action::RemoveLease, Action::Terminate]);
    let killed = [Action::RemoveLease, Action::Sweep(Sweep::Kill)];
    assert_eq!(run.at(40, Event::Tick), killed);
    assert_eq!(run.at(40, GONE), [told_killed(), Action::Exit(EXIT_LOST)]);

    // A kubelet that sees the file may be faster than the guard that is told too late.
    let mut run = Run::new(Mode::Container, false);
    assert_eq!(
        run.at(50, granted(A, true, 50, 90)),
        [
            Action::Sweep(Sweep::Kill),
            Action::RemoveLease,
            Action::Sweep(Sweep::Kill)
        ]
    );
    assert_eq!(run.at(50, GONE), [told_gone(None)]);

    // Stopped on suspicion it is still under the lock, and paused at its deadline it is not.
    let mut run = Run::new(Mode::Container, false);
    run.at(0, pausing(A, true, 50));
    let suspect = Event::Frame(ToGuard::Suspect { token: A });
    assert_eq!(run.at(10, suspect), [Action::Sweep(Sweep::Stop)]);
    assert_eq!(
        run.at(50, Event::Tick),
        [Action::RemoveLease, Action::Sweep(Sweep::Stop)]
    );
}

#[test]
fn a_container_has_ended_by_itself_once_nothing_is_left_of_what_was_seen_in_it() {
    let killed = [Action::RemoveLease, Action::Sweep(Sweep::Kill)];
    let running = || {
        let mut run = Run::new(Mode::Container, false);
        run.at(0, granted(A, true, 9000, 9100));
        // The kubelet has not started it yet.
        assert_eq!(run.schedule.wake_at(), Some(ms(50)));
        assert_eq!(run.at(50, Event::Tick), [Action::Sweep(Sweep::Look)]);
        assert_eq!(run.at(50, GONE), []);
        assert_eq!(run.at(200, Event::Tick), [Action::Sweep(Sweep::Look)]);
        assert_eq!(run.at(200, ALIVE), []);
        assert_eq!(run.schedule.wake_at(), Some(ms(1200)));
        run
    };
    let mut run = running();
    assert_eq!(run.at(300, Event::ChildEnded), [Action::Sweep(Sweep::Look)]);
    assert_eq!(run.at(300, ALIVE), [], "another process of it is left");
    assert_eq!(run.at(310, Event::ChildEnded), [Action::Sweep(Sweep::Look)]);
    assert_eq!(run.at(310, GONE), killed);
    assert_eq!(
        run.at(310, GONE),
        [report(FromGuard::Exited { token: A, code: 0 })]
    );

    // Told to end it did so before its time was up.
    let mut run = running();
    let stop = ToGuard::Stop {
        token: A,
        kill_at: ms(800),
    };
    assert_eq!(run.at(300, Event::Frame(stop)), [Action::Terminate]);
    run.at(310, Event::ChildEnded);
    assert_eq!(run.at(310, GONE), killed);
    assert_eq!(run.at(310, GONE), [told_gone(Some(0))]);

    // Without a keeper the lock cannot be released: the pod has to be gated anew.
    let mut run = running();
    run.at(300, Event::KeeperLost { returns: false });
    run.at(310, Event::ChildEnded);
    run.at(310, GONE);
    assert_eq!(run.at(310, GONE), [told_gone(None), Action::Exit(EXIT_LOST)]);
}

#[test]
fn a_guard_that_the_keeper_does_not_take_ends_once_it_has_nothing_to_guard() {
    let refused = || {
        Event::Frame(ToGuard::Refuse {
            why: Refusal::Another,
        })
    };
    let mut run = Run::new(Mode::Pid1, true);
    assert_eq!(run.at(1, refused()), [Action::Exit(EXIT_REFUSED)]);

    let mut run = Run::new(Mode::Pid1, true);
    run.at(0, granted(A, true, 100, 200));
    assert_eq!(run.at(1, refused()), [], "its lease goes on");
    run.at(1, Event::KeeperLost { returns: false });
    assert_eq!(run.at(100, Event::Tick), [Action::Terminate]);
    assert_eq!(run.at(200, Event::Tick), [Action::Sweep(Sweep::Kill)]);
    assert_eq!(run.at(200, GONE), [told_killed()]);
    run.at(210, Event::KeeperConnected);
    assert_eq!(run.at(210, refused()), [Action::Exit(EXIT_REFUSED)]);
}

#[test]
fn a_paused_application_whose_guard_no_keeper_takes_is_ended_with_its_container() {
    let refused = |why| Event::Frame(ToGuard::Refuse { why });
    let mut run = Run::paused();
    run.at(200, Event::KeeperLost { returns: false });
    run.at(300, Event::KeeperConnected);
    assert_eq!(run.at(300, refused(Refusal::Another)), [], "that one may end");
    assert_eq!(
        run.at(310, refused(Refusal::Version)),
        [Action::Sweep(Sweep::Kill)]
    );
    run.at(311, GONE);
    run.at(320, Event::KeeperConnected);
    assert_eq!(
        run.at(320, refused(Refusal::Version)),
        [Action::Exit(EXIT_REFUSED)]
    );
}

#[test]
fn an_application_that_no_keeper_could_resume_is_ended_at_its_deadline_and_not_paused() {
    let mut run = Run::new(Mode::Pid1, true);
    run.at(0, pausing(A, true, 100));
    run.at(1, Event::Started { pid: 42 });
    run.at(10, Event::KeeperLost { returns: false });
    run.at(20, Event::KeeperConnected);
    let why = Refusal::Version;
    assert_eq!(run.at(20, Event::Frame(ToGuard::Refuse { why })), []);
    run.at(20, Event::KeeperLost { returns: false });
    assert_eq!(run.at(100, Event::Tick), [Action::Sweep(Sweep::Kill)]);
}
