//! What the state machine promises, without processes.

mod sequences;

use super::*;
use crate::guard::protocol::Grant;

const A: FencingToken = FencingToken(7);
const B: FencingToken = FencingToken(8);
const TERM: u8 = libc::SIGTERM as u8;
const CONT: u8 = libc::SIGCONT as u8;

const GONE: Event = Event::Saw(Sight {
    alive: false,
    unstopped: false,
});
const STOPPED: Event = Event::Saw(Sight {
    alive: true,
    unstopped: false,
});
const ALIVE: Event = Event::Saw(Sight {
    alive: true,
    unstopped: true,
});

fn ms(millis: u64) -> BootInstant {
    BootInstant::from_nanos(millis * 1_000_000)
}

fn grant(token: FencingToken, start: bool, term_at: u64, kill_at: u64) -> Grant {
    Grant {
        token,
        start,
        pause: false,
        term_at: ms(term_at),
        kill_at: ms(kill_at),
    }
}

fn pausing(token: FencingToken, start: bool, kill_at: u64) -> Event {
    Event::Frame(ToGuard::Grant(Grant {
        pause: true,
        ..grant(token, start, kill_at - 10, kill_at)
    }))
}

fn granted(token: FencingToken, start: bool, term_at: u64, kill_at: u64) -> Event {
    Event::Frame(ToGuard::Grant(grant(token, start, term_at, kill_at)))
}

/// A connected guard and what it has done so far.
struct Run {
    schedule: Schedule,
}

impl Run {
    fn new(mode: Mode, reconnects: bool) -> Self {
        let mut schedule = Schedule::new(mode, reconnects, ms(0));
        schedule.handle(Event::KeeperConnected, ms(0));
        Self { schedule }
    }

    /// Running under A until 100 (SIGTERM) and 200 ms (SIGKILL).
    fn running() -> Self {
        let mut run = Self::new(Mode::Subreaper, false);
        assert_eq!(run.at(0, granted(A, true, 100, 200)), [Action::Start(A)]);
        run.at(1, Event::Started { pid: 42 });
        run
    }

    /// Paused at 100 ms, having run under A.
    fn paused() -> Self {
        let mut run = Self::new(Mode::Pid1, true);
        run.at(0, pausing(A, true, 100));
        run.at(1, Event::Started { pid: 42 });
        assert_eq!(run.at(100, Event::Tick), [Action::Sweep(Sweep::Stop)]);
        assert_eq!(
            run.at(101, STOPPED),
            [Action::Sweep(Sweep::Stop), report(FromGuard::Paused { token: A })]
        );
        run
    }

    fn at(&mut self, millis: u64, event: Event) -> Vec<Action> {
        self.schedule.handle(event, ms(millis)).iter().collect()
    }
}

fn report(frame: FromGuard) -> Action {
    Action::Report(frame)
}

fn told_gone(code: Option<u8>) -> Action {
    report(FromGuard::Gone { token: A, code })
}

#[test]
fn an_application_gets_sigterm_then_sigkill_at_the_deadlines_of_its_grant() {
    let mut run = Run::running();
    assert_eq!(run.schedule.wake_at(), Some(ms(100)));
    assert_eq!(run.at(99, Event::Tick), []);
    assert_eq!(run.at(100, Event::Tick), [Action::Terminate]);
    assert_eq!(run.schedule.wake_at(), Some(ms(200)));
    assert_eq!(run.at(200, Event::Tick), [Action::Sweep(Sweep::Kill)]);
    assert_eq!(run.at(200, ALIVE), []);
    assert_eq!(run.at(201, GONE), [Action::Sweep(Sweep::Kill), told_gone(None)]);
    assert_eq!(run.schedule.wake_at(), None);
}

#[test]
fn a_later_grant_never_moves_a_deadline_earlier() {
    let mut run = Run::running();
    run.at(10, granted(A, false, 50, 60));
    assert_eq!(run.schedule.wake_at(), Some(ms(100)));
    run.at(20, granted(A, false, 150, 160));
    assert_eq!(run.schedule.wake_at(), Some(ms(150)));
    assert_eq!(run.at(150, Event::Tick), [Action::Terminate]);
    assert_eq!(run.schedule.wake_at(), Some(ms(200)));
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
    let late = report(FromGuard::Gone { token: B, code: None });
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
    assert_eq!(run.at(10, ALIVE), []);
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
    assert_eq!(run.at(11, Event::Frame(ToGuard::Revoke { token: B })), []);
    assert_eq!(
        run.at(12, GONE),
        [
            Action::Sweep(Sweep::Kill),
            report(FromGuard::Gone { token: B, code: None })
        ]
    );
}

#[test]
fn a_tree_that_is_stopped_on_suspicion_is_not_called_paused() {
    let mut run = Run::running();
    run.at(10, Event::Frame(ToGuard::Suspect { token: A }));
    run.at(10, STOPPED);
    assert_eq!(
        run.schedule.hello(1),
        FromGuard::Hello {
            pid: 1,
            token: Some(A),
            paused: false
        }
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
    assert_eq!(run.at(50, Event::Tick), [Action::Sweep(Sweep::Kill)]);

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
        [report(FromGuard::Gone { token: B, code: None })],
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
        "somebody sent it SIGCONT"
    );
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

#[test]
fn losing_the_keeper_changes_nothing_before_the_deadline() {
    let mut run = Run::running();
    assert_eq!(run.at(10, Event::KeeperLost), []);
    assert_eq!(run.at(100, Event::Tick), [Action::Terminate]);
    assert_eq!(run.at(200, Event::Tick), [Action::Sweep(Sweep::Kill)]);
    assert_eq!(run.at(200, GONE), [told_gone(None), Action::Exit(EXIT_LOST)]);
    assert_eq!(
        Run::new(Mode::Subreaper, false).at(1, Event::KeeperLost),
        [Action::Exit(EXIT_SOFTWARE)]
    );
    assert_eq!(Run::new(Mode::Pid1, true).at(1, Event::KeeperLost), []);
}

#[test]
fn the_exit_code_of_the_application_is_passed_on_when_there_is_no_keeper_to_ask() {
    for (mode, reconnects) in [(Mode::Subreaper, false), (Mode::Pid1, true)] {
        let mut run = Run::new(mode, reconnects);
        run.at(0, granted(A, true, 100, 200));
        run.at(1, Event::KeeperLost);
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
    assert_eq!([2, 13, 8].map(exit_code_of_errno), [127, 126, 126]);
}

#[test]
fn pid_1_ends_when_something_outlives_sigkill_and_others_say_so_once() {
    let mut run = Run::new(Mode::Pid1, true);
    run.at(0, granted(A, true, 100, 200));
    run.at(10, Event::Frame(ToGuard::Revoke { token: A }));
    assert_eq!(run.at(10, ALIVE), []);
    assert_eq!(
        run.at(110, ALIVE),
        [Action::Sweep(Sweep::Kill), Action::Exit(EXIT_LOST)]
    );

    let mut run = Run::running();
    run.at(10, Event::Frame(ToGuard::Revoke { token: A }));
    let survivors = report(FromGuard::Survivors { token: A });
    assert_eq!(run.at(110, ALIVE), [Action::Sweep(Sweep::Kill), survivors]);
    assert_eq!(run.at(111, ALIVE), [Action::Sweep(Sweep::Kill)]);
    assert_eq!(run.schedule.wake_at(), Some(ms(161)));
    assert!(run.at(161, GONE).contains(&told_gone(None)));
}

#[test]
fn a_guard_that_is_told_to_end_ends_at_once_in_standby_and_with_its_application_else() {
    let term = Event::Signal {
        signo: TERM,
        to_group: false,
    };
    let told = report(FromGuard::Signal { signo: TERM });
    assert_eq!(Run::new(Mode::Pid1, true).at(1, term), [told, Action::Exit(143)]);
    // In `run` the keeper gives its place in the queue back first, unless the user insists.
    let mut run = Run::new(Mode::Subreaper, false);
    assert_eq!(run.at(1, term), [told]);
    assert_eq!(run.at(2, term), [told, Action::Exit(143)]);

    let mut run = Run::new(Mode::Pid1, true);
    run.at(0, granted(A, true, 100, 200));
    assert_eq!(run.at(1, term), [told, Action::Forward(TERM)]);
    run.at(2, Event::MainExited { code: 5 });
    assert!(run.at(2, GONE).ends_with(&[Action::Exit(5)]));
}

#[test]
fn every_signal_is_passed_on_but_not_twice_when_a_terminal_sent_it_to_the_application_too() {
    let mut run = Run::running();
    for signo in [1, 2, 3, 10, 12, 15, 18, 28, 40] {
        let forwarded = run.at(
            1,
            Event::Signal {
                signo,
                to_group: false,
            },
        );
        assert!(forwarded.contains(&Action::Forward(signo)), "{signo}");
        let typed = run.at(
            1,
            Event::Signal {
                signo,
                to_group: true,
            },
        );
        assert!(!typed.contains(&Action::Forward(signo)), "{signo}");
    }
    // A second SIGTERM could be taken for impatience.
    assert_eq!(run.at(100, Event::Tick), []);
}

#[test]
fn nothing_starts_after_a_user_has_asked_the_guard_to_end() {
    let mut run = Run::new(Mode::Subreaper, false);
    run.at(
        1,
        Event::Signal {
            signo: TERM,
            to_group: false,
        },
    );
    assert_eq!(run.at(2, granted(A, true, 100, 200)), [told_gone(None)]);
}

#[test]
fn a_container_without_the_lock_is_killed_whenever_something_appears_in_it() {
    let mut run = Run::new(Mode::Container, false);
    for wait in [40, 80, 160, 200, 200] {
        let now = run.schedule.wake_at().expect("a scan").as_nanos() / 1_000_000;
        assert_eq!(run.at(now, Event::Tick), [Action::Sweep(Sweep::Kill)]);
        run.at(now, GONE);
        assert!(run.schedule.wake_at() <= Some(ms(now + wait)), "{wait}");
    }
    let now = run.schedule.wake_at().expect("a scan").as_nanos() / 1_000_000;
    run.at(now, Event::Tick);
    run.at(now, ALIVE);
    assert_eq!(run.schedule.wake_at(), Some(ms(now + 20)));

    assert_eq!(run.at(now + 1, granted(A, true, 9000, 9100)), [Action::Start(A)]);
    assert_eq!(run.schedule.wake_at(), Some(ms(9000)));
}
