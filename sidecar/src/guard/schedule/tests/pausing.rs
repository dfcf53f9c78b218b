//! Trees that are stopped by SIGSTOP: at the deadline, or on suspicion.

use super::*;
use crate::link::protocol::Containment;

#[test]
fn a_tree_that_is_stopped_on_suspicion_is_not_called_paused() {
    let mut run = Run::running();
    run.at(10, Event::Frame(ToGuard::Suspect { token: A }));
    run.at(10, STOPPED);
    assert_eq!(
        run.schedule.hello(1, 7, Containment::Sweep, 0),
        FromGuard::Hello(Hello {
            pid: 1,
            instance: 7,
            is_first: false,
            has_ticket: false,
            tree: Some(Tree {
                token: A,
                is_paused: false,
            }),
            containment: Containment::Sweep,
            clock: 0,
        })
    );
}

#[test]
fn a_suspected_tree_is_stopped_goes_on_when_confirmed_and_keeps_its_deadlines() {
    let mut run = Run::running();
    assert_eq!(
        run.at(10, Event::Frame(ToGuard::Suspect { token: A })),
        [Action::Sweep(Sweep::Stop)]
    );
    assert_eq!(run.at(10, ALIVE), []);
    assert_eq!(run.at(11, STOPPED), [Action::Sweep(Sweep::Stop)]);
    assert_eq!(
        run.at(
            20,
            Event::Signal {
                signo: CONT,
                to_group: false
            }
        ),
        []
    );
    assert_eq!(run.at(30, Event::Frame(ToGuard::Confirm { token: B })), []);
    assert_eq!(
        run.at(40, Event::Frame(ToGuard::Confirm { token: A })),
        [Action::Sweep(Sweep::Continue)]
    );
    run.at(50, Event::Frame(ToGuard::Suspect { token: A }));
    run.at(50, STOPPED);
    // It has to be awake to act on SIGTERM.
    assert_eq!(
        run.at(100, Event::Tick),
        [Action::Terminate, Action::Sweep(Sweep::Continue)]
    );
    assert_eq!(run.at(110, Event::Frame(ToGuard::Suspect { token: A })), []);
    assert_eq!(run.at(200, Event::Tick), [Action::Sweep(Sweep::Kill)]);
}

#[test]
fn a_confirmation_that_comes_after_the_deadline_resumes_nothing() {
    let mut run = Run::new(Mode::Pid1, true);
    run.at(0, pausing(A, true, 100));
    run.at(10, Event::Frame(ToGuard::Suspect { token: A }));
    run.at(10, STOPPED);
    assert_eq!(
        run.at(100, Event::Frame(ToGuard::Confirm { token: A })),
        [Action::Sweep(Sweep::Stop)]
    );
}

#[test]
fn a_paused_tree_is_never_resumed_by_a_grant_of_the_old_token_after_its_deadline() {
    let mut run = Run::paused();
    assert_eq!(run.at(110, pausing(A, true, 900)), []);
    assert_eq!(run.at(111, Event::Frame(ToGuard::Confirm { token: A })), []);
    assert_eq!(
        run.at(
            112,
            Event::Signal {
                signo: CONT,
                to_group: false
            }
        ),
        []
    );
    assert_eq!(
        run.at(113, granted(B, true, 113, 900)),
        [report(FromGuard::Gone {
            token: B,
            code: None,
            had_sigterm: false
        })],
        "too late to go on"
    );
    let go_on = [
        Action::Sweep(Sweep::Continue),
        report(FromGuard::Started { token: B, pid: 42 }),
    ];
    assert_eq!(run.at(114, pausing(B, true, 900)), go_on);
}

#[test]
fn a_tree_that_cannot_be_seen_to_be_paused_is_killed() {
    let mut run = Run::new(Mode::Pid1, true);
    run.at(0, pausing(A, true, 100));
    run.at(100, ALIVE);
    assert!(!run.at(150, ALIVE).contains(&Action::Sweep(Sweep::Kill)));
    assert!(run.at(200, ALIVE).contains(&Action::Sweep(Sweep::Kill)));

    let mut run = Run::paused();
    assert_eq!(run.at(140, Event::Tick), []);
    assert_eq!(run.at(151, Event::Tick), [Action::Sweep(Sweep::Look)]);
    assert_eq!(
        run.at(151, ALIVE),
        [Action::Sweep(Sweep::Kill)],
        "another process sent it SIGCONT"
    );
}

#[test]
fn what_is_executed_in_a_paused_container_is_stopped_and_nothing_is_killed_for_it() {
    let mut run = Run::paused();
    assert_eq!(run.at(151, Event::Tick), [Action::Sweep(Sweep::Look)]);
    assert_eq!(run.at(151, FRESH), [Action::Sweep(Sweep::Stop)]);
    assert!(
        run.at(152, STOPPED)
            .contains(&report(FromGuard::Paused { token: A }))
    );
    // What does not stop is killed, and the rest with it.
    run.at(202, FRESH);
    assert!(!run.at(301, FRESH).contains(&Action::Sweep(Sweep::Kill)));
    assert!(run.at(302, FRESH).contains(&Action::Sweep(Sweep::Kill)));
}

#[test]
fn a_process_in_doubt_is_no_start_hides_no_end_and_is_never_called_gone() {
    let doubt = Event::Saw(Sight {
        alive: true,
        unstopped: true,
        unsure: true,
        fresh: true,
    });
    let mut run = Run::new(Mode::Container, false);
    run.at(0, granted(A, true, 10_000, 20_000));
    run.at(1, Event::Started { pid: 0 });
    run.at(50, doubt);
    assert_eq!(run.at(60, GONE), [], "nothing has begun");
    run.at(100, ALIVE);
    assert!(
        run.at(200, doubt).contains(&Action::Sweep(Sweep::Kill)),
        "it has ended"
    );
    assert!(run.at(2_200, doubt).contains(&Action::ReportSurvivors(A)));
    assert!(
        run.at(9_000, GONE)
            .contains(&report(FromGuard::Exited { token: A, code: 0 }))
    );
}

#[test]
fn a_guard_whose_keeper_would_kill_it_says_that_it_is_at_work_from_the_first_sigstop_on() {
    for mode in [Mode::Subreaper, Mode::Container] {
        is_heard_from_the_first_sigstop_on(mode);
    }
}

fn is_heard_from_the_first_sigstop_on(mode: Mode) {
    let mut run = Run::new(mode, false);
    run.at(0, pausing(A, true, 100));
    assert!(run.at(100, Event::Tick).ends_with(&[Action::Sweep(Sweep::Stop)]));
    let at_work = report(FromGuard::AtWork { token: A });
    assert_eq!(run.at(100, ALIVE), [at_work]);
    assert_eq!(run.at(119, ALIVE), [Action::Sweep(Sweep::Stop)]);
    assert_eq!(run.at(120, ALIVE), [Action::Sweep(Sweep::Stop), at_work]);
    // What cannot be stopped is killed, and the word does not fail in between.
    run.at(195, ALIVE);
    assert!(run.at(200, ALIVE).contains(&Action::Sweep(Sweep::Kill)));
    assert!(run.at(201, ALIVE).contains(&at_work));
}

#[test]
fn a_paused_tree_that_is_told_to_end_is_killed_without_running_again() {
    let stop = Event::Frame(ToGuard::Stop {
        token: A,
        kill_at: ms(900),
    });
    for end in [
        stop,
        Event::Signal {
            signo: TERM,
            to_group: false,
        },
        Event::Frame(ToGuard::Revoke { token: A }),
    ] {
        let actions = Run::paused().at(110, end);
        assert!(
            actions.contains(&Action::Sweep(Sweep::Kill)),
            "{end:?}: {actions:?}"
        );
        assert!(
            !actions.contains(&Action::Sweep(Sweep::Continue)),
            "{end:?}: {actions:?}"
        );
    }
}
