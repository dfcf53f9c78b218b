//! What the keeper's decisions promise, without guard, lock or clock.

mod endings;
mod inheriting;
mod losses;
mod pod;
mod running;
mod survivors;
mod together;

use lockkeeper_lock::{BootInstant, FencingToken, LockState, LockStatus, LossReason};

use super::*;
use crate::args::{OnExit, OnLoss, OnSuspect, Restart};
use crate::keeper::policy::Kind;
use crate::link::protocol::{Containment, FromGuard, Grant, Hello, ToGuard, Tree};

/// Session timeout; its margin is 350 ms ([`lockkeeper_lock::LockStatus::deadline`]).
const T: Duration = Duration::from_secs(15);

fn ms(millis: u64) -> BootInstant {
    BootInstant::from_nanos(millis * 1_000_000)
}

fn policy(kind: Kind) -> Policy {
    Policy {
        kind,
        on_loss: OnLoss::Kill,
        on_suspect: OnSuspect::Continue,
        on_exit: OnExit::Release,
        restart: if kind == Kind::Run {
            Restart::Never
        } else {
            Restart::Always
        },
        stop_grace: Duration::from_secs(3),
        lock_delay: Duration::ZERO,
        wait_timeout: None,
        conflict_code: None,
        loss_code: 75,
        session_timeout: T,
        termination_grace: (kind != Kind::Run).then_some(Duration::from_secs(30)),
    }
}

const A: FencingToken = FencingToken(7);
const B: FencingToken = FencingToken(8);

/// A lock in this state, with a lease until `end`.
fn lock(state: LockState, token: FencingToken, end: u64) -> LockStatus {
    LockStatus {
        state,
        token: Some(token),
        position: Some(0),
        lease_end: Some(ms(end)),
        session: Some(1),
        session_timeout: Some(T),
        ..LockStatus::new()
    }
}

fn held(token: FencingToken, end: u64) -> LockStatus {
    lock(LockState::Held, token, end)
}

fn waiting(position: usize) -> LockStatus {
    LockStatus {
        position: Some(position),
        lease_end: None,
        ..lock(LockState::Waiting, A, 0)
    }
}

fn lost(reason: LossReason) -> LockStatus {
    LockStatus {
        loss: Some(reason),
        ..lock(LockState::Lost, A, 0)
    }
}

fn released() -> LockStatus {
    LockStatus::new()
}

fn hello(token: Option<FencingToken>, is_paused: bool) -> FromGuard {
    FromGuard::Hello(Hello {
        pid: 1,
        instance: 1,
        is_first: true,
        has_ticket: false,
        tree: token.map(|token| Tree { token, is_paused }),
        containment: Containment::Sweep,
        clock: 0,
    })
}

fn survivors(token: FencingToken) -> FromGuard {
    FromGuard::Survivors {
        token,
        count: 1,
        pid: 9,
    }
}

/// What the guard is told with a lease until `end`.
fn grant(token: FencingToken, start: bool, end: u64) -> Act {
    let kill_at = ms(end - 350);
    Act::Tell(ToGuard::Grant(Grant {
        token,
        generation: 0,
        start,
        pause: false,
        term_at: kill_at.saturating_sub(Duration::from_secs(3)),
        kill_at,
    }))
}

fn stop(kill_at: u64) -> Act {
    Act::Tell(ToGuard::Stop {
        token: A,
        kill_at: ms(kill_at),
    })
}

const REVOKE: Act = Act::Tell(ToGuard::Revoke { token: A });
const GONE: FromGuard = FromGuard::Gone {
    token: A,
    code: None,
    had_sigterm: false,
};
const TERM: FromGuard = FromGuard::EndWanted { signo: 15 };
const CONTEND: Act = Act::Ask(Ask::Contend);
const RELEASE: Act = Act::Ask(Ask::Release);

fn exited(code: u8) -> FromGuard {
    FromGuard::Exited { token: A, code }
}

fn end(code: u8) -> Act {
    Act::End(Ending::Code(code))
}

/// A keeper at its desk.
struct Desk {
    decider: Decider,
    now: u64,
    /// Of the last grant that was told.
    generation: u32,
}

impl Desk {
    fn new(policy: Policy) -> Self {
        Self {
            decider: Decider::new(policy, ms(0)),
            now: 0,
            generation: 0,
        }
    }

    /// In the queue, with a guard that runs nothing.
    fn waiting(policy: Policy) -> Self {
        let mut desk = Self::new(policy);
        assert_eq!(desk.said(hello(None, false)), [CONTEND]);
        assert_eq!(desk.answered(waiting(1)), []);
        desk
    }

    /// Running under A, with a lease until 11 s.
    fn running(policy: Policy) -> Self {
        let mut desk = Self::waiting(policy);
        assert_eq!(desk.lock(held(A, 11_000)).len(), 2);
        assert_eq!(desk.said(FromGuard::Started { token: A, pid: 2 }), []);
        desk
    }

    /// Grants come without their generation, which was looked at here.
    fn decide(&mut self) -> Vec<Act> {
        let mut acts = self.decider.decide(ms(self.now));
        assert_eq!(
            self.decider.decide(ms(self.now)),
            [],
            "nothing has happened since"
        );
        for act in &mut acts {
            if let Act::Tell(ToGuard::Grant(grant)) = act {
                self.generation += 1;
                assert_eq!(std::mem::take(&mut grant.generation), self.generation);
            }
        }
        acts
    }

    fn at(&mut self, millis: u64) -> Vec<Act> {
        self.now = millis;
        self.decide()
    }

    fn lock(&mut self, status: LockStatus) -> Vec<Act> {
        self.decider.lock_changed(status, ms(self.now));
        self.decide()
    }

    fn answered(&mut self, status: LockStatus) -> Vec<Act> {
        self.decider.lock_answered(status, true, ms(self.now));
        self.decide()
    }

    fn refused(&mut self, status: LockStatus) -> Vec<Act> {
        self.decider.lock_answered(status, false, ms(self.now));
        self.decide()
    }

    fn said(&mut self, frame: FromGuard) -> Vec<Act> {
        self.decider.guard_said(frame, ms(self.now));
        self.decide()
    }

    fn wake_at(&self) -> Option<BootInstant> {
        self.decider.wake_at(ms(self.now))
    }
}

fn run() -> Policy {
    policy(Kind::Run)
}
