//! What a guard passes from one keeper to the next.

use lockkeeper_lock::{SESSION_PASSWORD_LEN, SessionKey, Ticket};
use uuid::Uuid;

use super::*;
use crate::link::protocol::TicketHalf;

fn halves(session: i64) -> [TicketHalf; 2] {
    let ticket = Ticket {
        session: SessionKey {
            id: session,
            password: [3; SESSION_PASSWORD_LEN],
        },
        session_timeout: Duration::from_secs(15),
        contender: Uuid::from_u128(5),
        token: A,
        lease: None,
    };
    TicketHalf::both(&ticket).expect("it fits")
}

fn after_hello(run: &Run) -> Vec<FromGuard> {
    run.schedule.after_hello().collect()
}

fn announces(run: &Run) -> bool {
    let hello = run.schedule.hello(1, 1, Containment::Sweep, 0);
    matches!(hello, FromGuard::Hello(hello) if hello.has_ticket)
}

const DEADLINE: FromGuard = FromGuard::Deadline {
    token: A,
    kill_at: BootInstant::from_nanos(200_000_000),
};

#[test]
fn the_next_keeper_hears_until_when_the_application_runs_and_what_the_last_one_has_left() {
    let mut run = Run::running();
    assert_eq!(after_hello(&run), [DEADLINE]);
    assert!(!announces(&run));
    for half in halves(7) {
        assert!(!announces(&run), "half a ticket is none");
        assert_eq!(run.at(2, Event::Frame(ToGuard::Keep(half))), []);
    }
    assert!(announces(&run));
    let [session, contender] = halves(7).map(FromGuard::Kept);
    assert_eq!(after_hello(&run), [DEADLINE, session, contender]);

    assert_eq!(run.at(3, Event::KeeperLost { returns: true }), []);
    assert_eq!(run.at(4, Event::KeeperConnected), []);
    assert_eq!(after_hello(&run), [DEADLINE, session, contender]);
    assert_eq!(run.at(5, Event::Frame(ToGuard::Forget)), []);
    assert_eq!(after_hello(&run), [DEADLINE]);
}

#[test]
fn a_keeper_that_replaces_another_renews_its_grant() {
    let mut run = Run::running();
    run.at(3, Event::KeeperLost { returns: true });
    run.at(50, Event::KeeperConnected);
    run.generation = 0;
    assert_eq!(run.at(60, granted(A, false, 300, 400)), []);
    assert_eq!(run.at(200, Event::Tick), []);
    assert_eq!(run.at(300, Event::Tick), [Action::Terminate]);
}

const CANNOT_BEGIN: ToGuard = ToGuard::CannotBegin { code: 69 };

#[test]
fn a_first_keeper_that_cannot_begin_ends_its_guard_with_its_code() {
    let mut run = Run::new(Mode::Subreaper, false);
    assert_eq!(run.at(1, Event::Frame(CANNOT_BEGIN)), [Action::Exit(69)]);
}

#[test]
fn a_keeper_that_cannot_begin_ends_nothing_that_the_one_before_it_has_granted() {
    let mut run = Run::running();
    run.at(3, Event::KeeperLost { returns: true });
    run.at(4, Event::KeeperConnected);
    assert_eq!(run.at(5, Event::Frame(CANNOT_BEGIN)), []);
    assert_eq!(run.at(6, Event::KeeperLost { returns: false }), []);
    assert_eq!(run.at(100, Event::Tick), [Action::Terminate]);
    assert_eq!(run.at(200, Event::Tick), [Action::Sweep(Sweep::Kill)]);
    assert_eq!(run.at(200, GONE), [told_killed(), Action::Exit(EXIT_LOST)]);

    // Whatever the guard does.
    let mut paused = Run::paused();
    paused.schedule.is_successor = true;
    assert_eq!(paused.at(110, Event::Frame(CANNOT_BEGIN)), []);
    let mut killing = Run::running();
    killing.at(3, Event::KeeperLost { returns: true });
    killing.at(200, Event::Tick);
    killing.at(201, Event::KeeperConnected);
    killing.at(202, Event::Frame(CANNOT_BEGIN));
    assert!(!killing.at(203, GONE).contains(&Action::Exit(69)));
    // With nothing to guard it waits for another one, and says in the end why there is none.
    let mut idle = Run::new(Mode::Subreaper, false);
    idle.at(3, Event::KeeperLost { returns: true });
    idle.at(4, Event::KeeperConnected);
    assert_eq!(idle.at(5, Event::Frame(CANNOT_BEGIN)), []);
    assert_eq!(idle.at(6, Event::KeeperLost { returns: true }), []);
    assert_eq!(
        idle.at(7, Event::KeeperLost { returns: false }),
        [Action::Exit(69)]
    );

    // One that has granted something speaks for the lock.
    let mut run = Run::running();
    run.at(3, Event::KeeperLost { returns: true });
    run.at(4, Event::KeeperConnected);
    run.generation = 0;
    run.at(5, granted(A, false, 300, 400));
    assert_eq!(
        run.at(6, Event::Frame(ToGuard::Finish { code: 69 })),
        [Action::Sweep(Sweep::Kill)]
    );
}

#[test]
fn the_next_keeper_hears_that_a_user_wants_the_guard_to_end() {
    let mut run = Run::running();
    run.at(3, Event::KeeperLost { returns: true });
    let signal = Event::Signal {
        signo: TERM,
        to_group: false,
    };
    assert!(run.at(4, signal).contains(&Action::Forward(TERM)));
    run.at(5, Event::KeeperConnected);
    assert_eq!(
        after_hello(&run),
        [DEADLINE, FromGuard::EndWanted { signo: TERM }]
    );
}

#[test]
fn the_next_keeper_hears_how_an_application_has_ended_that_the_last_one_did_not_follow_up() {
    let ended = FromGuard::Exited { token: A, code: 3 };
    // With a keeper that is killed after it, and without one.
    for first in [Event::MainExited { code: 3 }, Event::KeeperLost { returns: true }] {
        let mut run = Run::running();
        run.at(2, first);
        run.at(2, Event::MainExited { code: 3 });
        assert!(!run.at(2, GONE).contains(&Action::Exit(3)));
        run.at(3, Event::KeeperLost { returns: true });
        run.at(4, Event::KeeperConnected);
        assert_eq!(after_hello(&run), [ended]);
    }
    // The keeper has heard of it, and goes on.
    let mut run = Run::running();
    run.at(2, Event::MainExited { code: 3 });
    run.at(2, GONE);
    run.at(3, Event::Frame(ToGuard::Forget));
    assert_eq!(after_hello(&run), []);
}

#[test]
fn the_code_of_the_application_is_that_of_a_guard_whose_keepers_are_all_gone() {
    let mut run = Run::running();
    run.at(2, Event::KeeperLost { returns: true });
    run.at(3, Event::MainExited { code: 3 });
    run.at(3, GONE);
    assert_eq!(run.at(4, Event::KeeperLost { returns: false }), [Action::Exit(3)]);
}

#[test]
fn a_guard_does_not_fork_a_keeper_when_it_has_to_stop_something_soon() {
    let mut run = Run::new(Mode::Subreaper, false);
    assert!(run.schedule.has_time_to_fork(ms(0)));
    run.at(0, granted(A, true, 5_000, 6_000));
    assert!(run.schedule.has_time_to_fork(ms(3_999)));
    assert!(!run.schedule.has_time_to_fork(ms(4_000)));
    run.at(6_000, Event::Tick);
    assert!(!run.schedule.has_time_to_fork(ms(6_000)));
    run.at(6_001, GONE);
    assert!(run.schedule.has_time_to_fork(ms(6_001)));
}

#[test]
fn what_one_keeper_wanted_to_start_is_not_started_when_there_is_another_one() {
    let mut run = Run::running();
    run.at(2, Event::Frame(ToGuard::Revoke { token: A }));
    run.at(2, granted(B, true, 300, 400));
    run.at(2, Event::KeeperLost { returns: true });
    run.at(2, Event::KeeperConnected);
    assert_eq!(run.at(2, GONE), [told_gone(None)]);
}

#[test]
fn a_guard_that_runs_nothing_waits_for_the_next_keeper() {
    let mut run = Run::new(Mode::Subreaper, false);
    assert_eq!(run.at(1, Event::KeeperLost { returns: true }), []);
    assert_eq!(run.at(2, Event::KeeperConnected), []);
    assert_eq!(run.at(3, granted(A, true, 100, 200)), [Action::Start(A)]);
}

#[test]
fn what_is_paused_waits_for_the_next_keeper_and_is_killed_when_there_is_none() {
    let mut run = Run::paused();
    assert_eq!(run.at(110, Event::KeeperLost { returns: true }), []);
    assert!(after_hello(&run).is_empty());

    let mut run = Run::new(Mode::Subreaper, false);
    run.at(0, pausing(A, true, 100));
    run.at(1, Event::Started { pid: 42 });
    run.at(2, Event::KeeperLost { returns: true });
    assert_eq!(run.at(100, Event::Tick), [Action::Sweep(Sweep::Stop)]);
    run.at(101, STOPPED);
    assert_eq!(
        run.at(102, Event::KeeperLost { returns: false }),
        [Action::Sweep(Sweep::Kill)]
    );
}
