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
    let revoked = run.at(11, Event::Frame(ToGuard::Revoke { token: B }));
    assert_eq!(revoked, [Action::Sweep(Sweep::Kill)], "A's tree is not gone yet");
    assert_eq!(
        run.at(12, GONE),
        [
            Action::Sweep(Sweep::Kill),
            report(FromGuard::Gone { token: B, code: None })
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
