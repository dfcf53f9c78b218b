//! A keeper that goes on where the one before it ended.

use lockkeeper_lock::{SESSION_PASSWORD_LEN, SessionKey, Ticket};
use uuid::Uuid;

use super::*;
use crate::link::protocol::TicketHalf;

const L: Duration = Duration::from_millis(8_500);

const TICKET: Ticket = Ticket {
    session: SessionKey {
        id: 1,
        password: [3; SESSION_PASSWORD_LEN],
    },
    session_timeout: T,
    contender: Uuid::from_u128(5),
    token: A,
    lease: Some(L),
};

fn with_ticket(token: Option<FencingToken>, is_paused: bool) -> FromGuard {
    match hello(token, is_paused) {
        FromGuard::Hello(hello) => FromGuard::Hello(Hello {
            has_ticket: true,
            ..hello
        }),
        other => other,
    }
}

fn halves() -> [TicketHalf; 2] {
    TicketHalf::both(&TICKET).expect("it fits")
}

fn given() -> [Act; 2] {
    halves().map(|half| Act::Tell(ToGuard::Keep(half)))
}

fn connecting() -> LockStatus {
    LockStatus {
        state: LockState::Connecting,
        ..LockStatus::new()
    }
}

fn held_with_ticket() -> LockStatus {
    LockStatus {
        ticket: Some(TICKET),
        ..held(A, 11_000)
    }
}

/// A keeper to which a guard has told its ticket.
fn inheriting(policy: Policy, tree: Option<FencingToken>, is_paused: bool) -> Desk {
    let mut desk = Desk::new(policy);
    assert_eq!(desk.said(with_ticket(tree, is_paused)), []);
    let [session, contender] = halves();
    assert_eq!(desk.said(FromGuard::Kept(session)), []);
    assert_eq!(desk.said(FromGuard::Kept(contender)), [Act::Resume(TICKET)]);
    desk
}

#[test]
fn a_keeper_goes_on_with_the_lock_of_the_one_before_it_and_the_application_notices_nothing() {
    for policy in [Kind::Run, Kind::Wrap, Kind::Signal].map(policy) {
        let mut desk = inheriting(policy, Some(A), false);
        assert_eq!(desk.lock(connecting()), []);
        assert_eq!(desk.answered(waiting(0)), []);
        let acts = desk.lock(held_with_ticket());
        assert!(acts.contains(&grant(A, false, 11_000)), "{acts:?}");
        assert!(
            !acts
                .iter()
                .any(|act| matches!(act, Act::Tell(ToGuard::Stop { .. })))
        );
    }
}

#[test]
fn a_lock_that_comes_back_is_shown_with_the_lease_duration_that_its_contender_states() {
    let mut desk = Desk::new(run());
    desk.said(with_ticket(Some(A), false));
    desk.said(FromGuard::Deadline {
        token: A,
        kill_at: ms(10_650),
    });
    let shown = |desk: &Desk| desk.decider.left().map(|left| (left.token, left.lease));
    assert_eq!(shown(&desk), Some((A, None)));
    for half in halves() {
        desk.said(FromGuard::Kept(half));
    }
    assert_eq!(shown(&desk), Some((A, Some(L))));
    desk.lock(held_with_ticket());
    assert_eq!(shown(&desk), None);
}

#[test]
fn what_ran_under_a_lock_that_is_gone_is_stopped() {
    let mut desk = inheriting(run(), Some(A), false);
    desk.lock(connecting());
    let of_another = LockStatus {
        token: Some(B),
        ..waiting(1)
    };
    assert_eq!(desk.answered(of_another), [REVOKE]);
}

#[test]
fn a_keeper_that_is_refused_stops_what_was_left_to_it() {
    let mut desk = inheriting(run(), Some(A), false);
    desk.lock(connecting());
    assert_eq!(desk.refused(released()), [REVOKE]);
}

#[test]
fn what_ran_under_a_lock_that_another_contender_may_have_by_now_is_killed_at_once() {
    for reason in [LossReason::ContenderDeleted, LossReason::SessionExpired] {
        let mut desk = inheriting(run(), Some(A), false);
        desk.lock(connecting());
        let lost = LockStatus {
            token: None,
            ..lost(reason)
        };
        assert_eq!(desk.answered(lost), [REVOKE]);
    }
    // A server that grants less time has made the session shorter than the guard's deadline.
    let mut desk = inheriting(run(), Some(A), false);
    desk.lock(connecting());
    let shorter = LockStatus {
        session_timeout: Some(T / 2),
        ..waiting(0)
    };
    assert_eq!(desk.answered(shorter), [REVOKE]);
}

#[test]
fn a_user_is_heard_while_the_lock_of_the_keeper_before_is_on_its_way() {
    let mut desk = inheriting(run(), Some(A), false);
    desk.lock(connecting());
    assert!(desk.decider.step_down_wanted());
    assert_eq!(desk.decide(), [stop(3_000)]);
    assert_eq!(desk.said(GONE), []);
    assert_eq!(desk.answered(waiting(0)), [RELEASE]);
}

#[test]
fn what_is_being_ended_has_no_time_left_when_the_lock_that_was_left_to_it_is_gone() {
    let mut desk = inheriting(run(), Some(A), false);
    desk.lock(connecting());
    assert!(desk.decider.step_down_wanted());
    assert_eq!(desk.decide(), [stop(3_000)]);
    desk.now = 1_000;
    let lost = LockStatus {
        token: None,
        ..lost(LossReason::SessionExpired)
    };
    assert_eq!(desk.answered(lost), [grant(A, false, 1_350)]);
}

#[test]
fn a_lock_whose_application_has_ended_is_released_and_never_granted_again() {
    for (tree, is_paused) in [(None, false), (Some(A), true)] {
        let mut desk = inheriting(run(), tree, is_paused);
        assert_eq!(desk.lock(connecting()), []);
        assert_eq!(desk.answered(waiting(0)), [RELEASE]);
        assert_eq!(desk.lock(held_with_ticket()), []);
        let acts = desk.answered(released());
        assert_eq!(acts, [CONTEND, Act::Tell(ToGuard::Forget)]);
    }
}

#[test]
fn a_wait_that_was_limited_does_not_end_an_application_that_runs() {
    let policy = Policy {
        wait_timeout: Some(Duration::from_secs(1)),
        ..run()
    };
    let mut desk = inheriting(policy, Some(A), false);
    desk.lock(connecting());
    assert_eq!(desk.at(2_000), []);
}

#[test]
fn a_silent_guard_is_killed_after_the_deadline_that_it_has_from_the_keeper_before() {
    let mut desk = inheriting(run(), Some(A), false);
    let deadline = FromGuard::Deadline {
        token: A,
        kill_at: ms(5_000),
    };
    assert_eq!(desk.said(deadline), []);
    assert_eq!(desk.at(5_000), []);
    assert_eq!(desk.at(5_100), [Act::KillGuard]);
}

#[test]
fn a_silent_guard_has_no_more_time_because_a_user_wants_the_lock_released_that_was_left() {
    let mut desk = inheriting(run(), Some(A), false);
    let deadline = FromGuard::Deadline {
        token: A,
        kill_at: ms(5_000),
    };
    assert_eq!(desk.said(deadline), []);
    desk.lock(connecting());
    desk.now = 4_900;
    assert!(desk.decider.step_down_wanted());
    assert_eq!(desk.decide(), [stop(7_900)]);
    assert_eq!(desk.at(5_000), []);
    assert_eq!(desk.at(5_100), [Act::KillGuard]);
}

#[test]
fn a_guard_that_falls_silent_before_it_has_told_its_whole_ticket_is_killed_at_its_deadline() {
    let mut desk = Desk::new(run());
    assert_eq!(desk.said(with_ticket(Some(A), false)), []);
    let deadline = FromGuard::Deadline {
        token: A,
        kill_at: ms(5_000),
    };
    assert_eq!(desk.said(deadline), []);
    assert_eq!(desk.wake_at(), Some(ms(5_000)));
    assert_eq!(desk.at(5_000), []);
    assert_eq!(desk.at(5_100), [Act::KillGuard]);
}

#[test]
fn a_guard_gets_the_ticket_when_there_is_one_and_again_when_it_comes_back() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    assert_eq!(desk.lock(held_with_ticket()), given());
    desk.decider.guard_lost(true);
    assert_eq!(desk.decide(), [Act::RemoveLease]);
    let acts = desk.said(with_ticket(Some(A), false));
    // It is the guard of this keeper, so what it tells is nothing new.
    assert!(acts.ends_with(&given()), "{acts:?}");
    let [session, contender] = halves();
    assert_eq!(desk.said(FromGuard::Kept(session)), []);
    assert_eq!(desk.said(FromGuard::Kept(contender)), []);
}

#[test]
fn a_ticket_that_never_comes_does_not_keep_a_keeper_from_ending() {
    let mut desk = Desk::new(run());
    assert_eq!(desk.said(with_ticket(None, false)), []);
    assert_eq!(desk.said(TERM), [end(143)]);
}

#[test]
fn a_sidecar_that_alone_is_asked_to_end_leaves_its_lock_to_the_next_one() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    assert_eq!(desk.lock(held_with_ticket()), given());
    desk.decider.end_wanted(0);
    assert_eq!(desk.decide(), []);
    assert_eq!(desk.wake_at(), Some(ms(1_000)));
    assert_eq!(desk.at(1_000), [Act::RemoveLease, end(0)]);
}

#[test]
fn a_sidecar_that_is_asked_to_end_with_its_container_stops_the_application_and_releases() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.lock(held_with_ticket());
    desk.decider.end_wanted(0);
    assert_eq!(desk.decide(), []);
    desk.now = 500;
    assert_eq!(desk.said(TERM), [Act::RemoveLease, stop(3_500)]);
    assert_eq!(desk.said(GONE), [RELEASE]);
}

/// The kubelet calls the hook before each stop of the container, also when the pod stays.
#[test]
fn a_sidecar_of_another_image_leaves_the_lock_to_the_next_one_though_the_hook_before_its_stop_was_called() {
    let mut desk = Desk::running(policy(Kind::Wrap));
    desk.lock(held_with_ticket());
    desk.decider.pod_ends(ms(desk.now)).unwrap();
    desk.decider.end_wanted(0);
    assert_eq!(desk.decide(), []);
    assert_eq!(desk.at(1_000), [Act::RemoveLease, end(0)]);
}

#[test]
fn a_sidecar_beside_a_container_cannot_leave_it_since_the_guard_ends_with_it() {
    let mut desk = Desk::running(policy(Kind::Signal));
    desk.lock(held_with_ticket());
    desk.decider.end_wanted(0);
    assert_eq!(desk.decide(), [Act::RemoveLease, stop(3_000)]);
}

#[test]
fn a_command_that_is_to_run_once_is_not_started_again_by_a_keeper_that_missed_its_end() {
    let [session, contender] = halves();
    let mut desk = Desk::new(run());
    assert_eq!(desk.said(with_ticket(None, false)), []);
    assert_eq!(desk.said(exited(7)), []);
    assert_eq!(desk.said(FromGuard::Kept(session)), []);
    let acts = desk.said(FromGuard::Kept(contender));
    assert_eq!(acts, [Act::Resume(TICKET), RELEASE]);
    assert_eq!(desk.answered(released()), [end(7)]);

    // The same without a ticket.
    let mut desk = Desk::new(run());
    assert_eq!(desk.said(hello(None, false)), [CONTEND]);
    assert_eq!(desk.said(exited(7)), [RELEASE]);
    assert_eq!(desk.answered(released()), [end(7)]);
}
