//! What the keeper does and when: a pure state machine, without sockets, tasks or clocks.
//!
//! It is level-triggered: events change what is known ([`hear`]), and [`Decider::decide`] derives from all of it what
//! to do now, with the application ([`application`]) and with the place in the queue ([`queue`]). The rules, in the
//! order of their weight:
//! * the lock is given up only when the guard has reported that nothing of the application is left (or that all of it
//!   is stopped, with `onLoss: Pause`), or when the guard's end proves it;
//! * the application gets a grant only for a lock that is held now, and never a longer one than the
//!   lease less the margin;
//! * each grant starts the application at most once, and a token under which it was told to stop is
//!   never granted again: so a frame of the guard cannot be mistaken for the answer to a different frame.

mod act;
mod application;
mod hear;
mod inheritance;
mod place;
mod queue;
mod start_and_stop;
#[cfg(test)]
mod tests;
mod told;
mod watch;
mod wishes;

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken, LockState};

use self::act::Next;
pub use self::act::{Act, Ask, Ending};
use self::application::{App, Application, Cause};
use self::inheritance::Inheritance;
pub(super) use self::inheritance::LeftLock;
use self::place::Queue;
use self::told::Told;
use self::watch::Watch;
use self::wishes::Wishes;
use super::policy::{Kind, Policy};
use crate::link::protocol::{TicketHalf, ToGuard};
use crate::probes::health::Running;
use crate::view::Survivors;

/// How long a release at the end may take before the keeper lets the contender expire, at most a third of the session
/// timeout: the ensemble removes it soon anyway.
const PATIENCE_FOR_RELEASE: Duration = Duration::from_secs(5);

/// The state of the keeper, and its decisions.
pub struct Decider {
    policy: Policy,
    /// The lock, and our place in its queue.
    queue: Queue,
    /// What users want, and the pod.
    wishes: Wishes,
    told: Told,
    /// Until when the guard has to act.
    watch: Watch,
    application: Application,
    /// What passes from one keeper to the next.
    inheritance: Inheritance,
    /// What comes after the lock is given up.
    next: Option<Next>,
    /// The token in the file.
    lease_file: Option<FencingToken>,
    has_ended: bool,
}

impl Decider {
    /// A keeper that began at `now`: `--wait-timeout` counts from then.
    pub fn new(policy: Policy, now: BootInstant) -> Self {
        let give_up_at = policy.wait_timeout.map(|limit| {
            // Zero is meant for an ensemble that answers. An ensemble that does not answer gets its session timeout.
            let unreachable = policy.session_timeout - patience_for_release(&policy);
            now + if limit.is_zero() { unreachable } else { limit }
        });
        Self {
            policy,
            queue: Queue::new(give_up_at),
            wishes: Wishes::default(),
            told: Told::nothing(),
            watch: Watch::default(),
            application: Application::absent(),
            inheritance: Inheritance::default(),
            next: None,
            lease_file: None,
            has_ended: false,
        }
    }

    /// What to do now. To be called after every event, and at [`Decider::wake_at`].
    pub fn decide(&mut self, now: BootInstant) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.has_ended {
            return acts;
        }
        if self.wishes.take_answer() {
            acts.push(Act::AnswerStepDown);
        }
        self.look_at_the_clock(now);
        if self.queue.take_doubt() && self.queue.state() != LockState::Released {
            self.remove_lease(&mut acts);
            self.abandon(&mut acts);
        }
        if self.inheritance.is_awaited() && self.wishes.ending().is_none() {
            if let App::Granted { .. } | App::Stopping { .. } = self.application.state() {
                self.watch_the_guard(now, &mut acts);
            }
            return acts;
        }
        self.take_what_is_left(&mut acts);
        match self.application.state() {
            App::Granted { token, is_started } => self.decide_running(token, is_started, now, &mut acts),
            App::Idle | App::Paused { .. } => self.decide_starting(now, &mut acts),
            App::Stopping { token, cause, .. } => {
                self.remove_lease(&mut acts);
                if cause != Cause::Loss {
                    self.tell_an_earlier_deadline(token, now, &mut acts);
                }
            }
            App::Absent | App::OutOfSight { .. } => self.remove_lease(&mut acts),
        }
        match self.application.state() {
            App::Granted { .. } | App::Stopping { .. } => self.watch_the_guard(now, &mut acts),
            App::OutOfSight {
                deadline, is_watched, ..
            } => self.decide_out_of_sight(deadline, is_watched, now, &mut acts),
            App::Absent | App::Idle | App::Paused { .. } => self.decide_queue(now, &mut acts),
        }
        self.leave_a_ticket(&mut acts);
        acts
    }

    /// Goes on with the contender of the keeper before us. If its application has ended, or is paused, that contender is
    /// given up like ours would be.
    fn take_what_is_left(&mut self, acts: &mut Vec<Act>) {
        let Some(ticket) = self.inheritance.take() else {
            return;
        };
        let runs = matches!(self.application.state(), App::Granted { token, .. } if token == ticket.token);
        if runs {
            self.queue.wait_for_ever();
        } else {
            self.next.get_or_insert(Next::QueueAgain);
        }
        self.queue.enter();
        acts.push(Act::Resume(ticket));
    }

    /// Tells the guard with what the next keeper goes on.
    fn leave_a_ticket(&mut self, acts: &mut Vec<Act>) {
        let has_guard = !matches!(self.application.state(), App::Absent | App::OutOfSight { .. });
        if self.has_ended || !has_guard {
            return;
        }
        if self.inheritance.is_to_be_forgotten() {
            acts.push(Act::Tell(ToGuard::Forget));
        }
        // A lock that is being given up has nothing for the next keeper.
        let is_leaving = self.queue.asked() == Some(Ask::Release);
        let current = self.queue.status().ticket.filter(|_| !is_leaving);
        let given = self.inheritance.give(current);
        for half in given.as_ref().and_then(TicketHalf::both).into_iter().flatten() {
            acts.push(Act::Tell(ToGuard::Keep(half)));
        }
    }

    /// When to look again though nothing has happened.
    pub fn wake_at(&self, now: BootInstant) -> Option<BootInstant> {
        let of_the_application = match self.application.state() {
            App::Granted { .. } => [
                self.queue.status().deadline(),
                self.told.lease_file_until(),
                self.stop_at(),
                self.wishes.leaves_at(),
            ],
            App::OutOfSight { deadline, .. } => [deadline, None, None, None],
            // From then on a guard that is late is killed sooner.
            App::Stopping { .. } => [self.queue.status().deadline(), None, None, None],
            _ => [None; 4],
        };
        let of_the_guard = match self.application.state() {
            App::Granted { .. } | App::Stopping { .. } if self.policy.kind != Kind::Wrap => {
                self.watch.wake_at()
            }
            _ => None,
        };
        [of_the_guard, self.application.start_at(), self.delayed_until()]
            .into_iter()
            .chain(self.queue.wake_at())
            .chain(of_the_application)
            .flatten()
            .filter(|moment| *moment > now)
            .min()
    }

    /// The application, if it runs and may go on.
    pub(super) fn running(&self) -> Option<Running> {
        self.application.running().filter(|_| !self.told.is_suspect())
    }

    /// The lock that was left to us and that we do not hold yet.
    pub(super) fn left(&self) -> Option<LeftLock> {
        let App::Granted { token, .. } = self.application.state() else {
            return None;
        };
        let is_left = self.inheritance.is_awaited() || self.inheritance.is_left(token);
        let left = LeftLock {
            token,
            until: self.watch.deadline()?,
            lease: self.inheritance.lease(),
        };
        Some(left).filter(|_| is_left)
    }

    /// Whether the contender is to be kept even if the lock is lost: something of the application may be left, and
    /// its end will be reported.
    pub fn keeps_the_contender(&self) -> bool {
        self.application.keeps_the_contender()
    }

    pub(super) fn survivors(&self, now: BootInstant) -> Option<Survivors> {
        self.application.survivors(now)
    }

    /// Whether something is known to have outlived its deadline. The lock is kept while that is not known, too.
    pub(super) fn has_survivors(&self, now: BootInstant) -> bool {
        self.application.has_survivors(now)
    }

    /// The token under which `lockDelay` is over: its holder has waited for the previous holders.
    pub fn waited_under(&self, now: BootInstant) -> Option<FencingToken> {
        let delay = self.policy.lock_delay;
        let is_over = !delay.is_zero() && self.queue.held_since()? + delay <= now;
        // If the lock was lost before that, it is not known since when the next holder holds.
        self.queue.held_under(now).filter(|_| is_over)
    }

    /// The end of `lockDelay`, if the predecessor did not release cleanly.
    fn delayed_until(&self) -> Option<BootInstant> {
        let is_waiting = self.queue.status().predecessor_unclean
            && matches!(self.application.state(), App::Idle | App::Paused { .. });
        Some(self.queue.held_since()? + self.policy.lock_delay).filter(|_| is_waiting)
    }

    /// When to stop an application that does not end with its pod by itself.
    fn stop_at(&self) -> Option<BootInstant> {
        Some(self.wishes.gone_by()?.saturating_sub(self.policy.stop_grace))
    }

    /// A guard that is stopped or starved does not stop the application. In `run` it is a process like any other, and
    /// the application dies with it; beside a container it is one of a pod that shares its processes. As the first
    /// process of a container it can be neither stopped nor killed from the inside.
    fn watch_the_guard(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        if self.policy.kind == Kind::Wrap {
            return;
        }
        let token = self.application.state().token();
        let is_held = self.queue.held(now).is_some_and(|(held, _)| Some(held) == token);
        if self.watch.is_over(now, is_held) {
            acts.push(Act::KillGuard);
        }
    }

    fn look_at_the_clock(&mut self, now: BootInstant) {
        self.application.look_at_the_clock(now);
        let tries_once = self.policy.wait_timeout == Some(Duration::ZERO);
        if self.queue.look_at_the_clock(now, tries_once) {
            self.end_unless_ending(Ending::NotAcquired);
        }
    }

    /// An end that is decided already stands, whatever happens to the lock later.
    fn end_unless_ending(&mut self, ending: Ending) {
        if !matches!(self.next, Some(Next::End(_))) {
            self.next = Some(Next::End(ending));
        }
    }
}

/// How long a release at the end may take.
pub(super) fn patience_for_release(policy: &Policy) -> Duration {
    PATIENCE_FOR_RELEASE.min(policy.session_timeout / 3)
}
