//! What users' signals do.

use super::*;

#[test]
fn a_guard_that_is_told_to_end_ends_at_once_in_standby_and_with_its_application_else() {
    let term = Event::Signal {
        signo: TERM,
        to_group: false,
    };
    let told = report(FromGuard::EndWanted { signo: TERM });
    assert_eq!(Run::new(Mode::Pid1, true).at(1, term), [told, Action::Exit(143)]);
    assert_eq!(
        Run::new(Mode::Subreaper, true).at(1, term),
        [told, Action::Exit(143)]
    );
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
    // The application could take a second SIGTERM for a request to end at once.
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
fn a_hangup_is_for_the_guard_unless_an_application_runs_to_which_it_may_mean_something_else() {
    let hangup = Event::Signal {
        signo: 1,
        to_group: false,
    };
    let told = report(FromGuard::EndWanted { signo: 1 });
    assert_eq!(
        Run::new(Mode::Subreaper, false).at(1, hangup),
        [told],
        "in standby"
    );
    assert_eq!(
        Run::running().at(1, hangup),
        [Action::Forward(1)],
        "while it runs"
    );

    let mut run = Run::new(Mode::Subreaper, false);
    run.at(0, granted(A, true, 100, 200));
    assert!(run.at(1, hangup).contains(&told), "while it is being started");

    let mut run = Run::running();
    run.at(
        1,
        Event::Frame(ToGuard::Stop {
            token: A,
            kill_at: ms(150),
        }),
    );
    assert!(run.at(2, hangup).contains(&told), "while it is being stopped");

    let mut run = Run::running();
    run.at(1, Event::MainExited { code: 0 });
    assert!(
        run.at(2, hangup).contains(&told),
        "while the rest of it is killed after its end"
    );
}
