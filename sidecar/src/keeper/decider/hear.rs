//! Events, which change what is known.

use std::time::Duration;

use lockkeeper_daemon::exit::{Exit, killed_by};
use lockkeeper_lock::{BootInstant, LockState, LockStatus};

use super::Decider;
use super::act::{Ask, Ending, Next};
use super::application::{App, Cause};
use crate::args::{OnExit, Restart};
use crate::keeper::policy::Kind;
use crate::link::protocol::{FromGuard, Hello, Tree};

/// Exit code of a container whose postStart hook has failed: a general error.
const HOOK_FAILED: u8 = 1;

/// What is left of a pod's grace period when the application has to be gone: for the guard's report, and for the
/// release, which is one write of the ensemble. At the end of the period the kubelet kills the guard and asks us to
/// end at the same moment, and then nothing proves that the application is gone.
const RESERVE_OF_GRACE: Duration = Duration::from_secs(2);

impl Decider {
    pub fn lock_changed(&mut self, status: LockStatus, now: BootInstant) {
        if self.queue.changed(status, now) {
            self.end_unless_ending(Ending::Refused);
        }
    }

    /// A request to the lock has ended; `is_ok` is false when the ensemble refuses for good.
    pub fn lock_answered(&mut self, status: LockStatus, is_ok: bool, now: BootInstant) {
        let asked = self.queue.asked();
        self.lock_changed(status, now);
        self.queue.answered(is_ok && asked == Some(Ask::Contend));
        if !is_ok {
            self.end_unless_ending(Ending::Refused);
        } else if asked == Some(Ask::Release) {
            self.inheritance.given_up();
            self.wishes.released();
        }
    }

    pub fn guard_said(&mut self, frame: FromGuard, now: BootInstant) {
        match frame {
            FromGuard::Hello(hello) => self.greeted(hello, now),
            FromGuard::Kept(half) => self.inheritance.hear(half),
            FromGuard::Deadline { token, kill_at } => {
                if self.application.state().token() == Some(token) {
                    self.watch.expect(kill_at);
                }
            }
            // The guard is in another container, which may end and start again as often as it likes.
            FromGuard::EndWanted { .. } if self.policy.kind == Kind::Wrap => self.wishes.container_ends(true),
            FromGuard::EndWanted { signo } => self.wishes.want_end(killed_by(signo)),
            FromGuard::Started { token, .. }
            | FromGuard::Exited { token, .. }
            | FromGuard::Gone { token, .. }
            | FromGuard::Paused { token }
            | FromGuard::AtWork { token }
            | FromGuard::Survivors { token, .. }
            | FromGuard::StartFailed { token, .. } => {
                // A late frame of an older token says nothing about what runs now.
                if self.application.state().token() == Some(token) {
                    self.application_said(frame, now);
                } else if self.is_told_of_an_end(&frame) {
                    self.application.found(token, false, now);
                    self.application_said(frame, now);
                }
            }
        }
    }

    /// Whether a guard reports how an application has ended whose keeper did not follow that up, since it was killed.
    fn is_told_of_an_end(&self, frame: &FromGuard) -> bool {
        let is_end = matches!(
            frame,
            FromGuard::Exited { .. } | FromGuard::Gone { .. } | FromGuard::StartFailed { .. }
        );
        is_end
            && self.policy.kind != Kind::Wrap
            && self.application.state() == App::Idle
            && !self.queue.has_held()
    }

    fn application_said(&mut self, frame: FromGuard, now: BootInstant) {
        match (frame, self.application.state()) {
            (FromGuard::Started { pid, .. }, _) => self.application.started(pid, now),
            (FromGuard::Exited { code, .. }, _) => self.exited(code, now),
            (FromGuard::Gone { .. }, app) => self.gone(app),
            (
                FromGuard::Paused { token },
                App::Granted { .. }
                | App::Stopping {
                    cause: Cause::Deadline,
                    ..
                },
            ) => {
                self.application.becomes(App::Paused { token });
                self.next.get_or_insert(Next::QueueAgain);
            }
            (FromGuard::StartFailed { errno, .. }, _) => {
                self.application.nothing_runs();
                self.end_unless_ending(Ending::Code(Exit::of_errno(errno).code()));
            }
            (FromGuard::AtWork { .. }, _) => self.watch.at_work(now),
            // The guard keeps trying, and the lock stays ours until it succeeds.
            (FromGuard::Survivors { count, pid, .. }, _) => {
                self.application.outlives(count, pid);
                // A guard that is the first process of a container ends for it, and the kernel ends the rest.
                if self.policy.kind != Kind::Wrap {
                    self.watch.expect_nothing();
                }
            }
            _ => {}
        }
    }

    /// The guard's connection is over; [`Decider::guard_ended`] follows at the end of its process if that
    /// `is_watched`.
    pub fn guard_lost(&mut self, is_watched: bool) {
        self.told.lost();
        self.inheritance.lost();
        let deadline = match self.application.state() {
            App::Absent | App::Idle => return self.application.becomes(App::Absent),
            App::OutOfSight { deadline, .. } => deadline,
            App::Granted { .. } | App::Paused { .. } | App::Stopping { .. } => self.watch.deadline(),
        };
        let left = self.application.left();
        self.application.becomes(App::OutOfSight {
            deadline,
            is_watched,
            left,
        });
    }

    /// The process of the guard has ended. If `is_proof`, everything that it started has ended, too.
    pub fn guard_ended(&mut self, is_proof: bool) {
        let App::OutOfSight { deadline, left, .. } = self.application.state() else {
            return;
        };
        if is_proof {
            self.ended_with_its_guard();
            self.application.becomes(App::Absent);
        } else {
            self.application.becomes(App::OutOfSight {
                deadline,
                is_watched: false,
                left,
            });
        }
    }

    /// Another guard takes the place of one that may have left something behind. Nothing is started, and no other
    /// contender gets the lock, before the session of that one is over.
    pub fn guard_succeeded(&mut self) {
        if matches!(self.application.state(), App::OutOfSight { .. }) {
            self.application.nothing_runs();
            self.application.becomes(App::Absent);
            self.queue.doubt();
        }
    }

    /// A user wants the lock not to wait for what has outlived its deadline.
    ///
    /// # Errors
    /// When nothing has.
    pub(crate) fn give_up_survivors(&mut self, now: BootInstant) -> Result<(), String> {
        if self.survivors(now).is_none() {
            return Err(
                "nothing is known to have outlived its deadline, so there is nothing to give up".to_owned(),
            );
        }
        self.queue.doubt();
        self.application.give_up();
        Ok(())
    }

    /// A user wants the lock handed over. False when there is nothing to hand over.
    pub fn step_down_wanted(&mut self) -> bool {
        let runs = matches!(self.application.state(), App::Granted { .. });
        let ends = matches!(self.next, Some(Next::End(_))) || (self.wishes.ending().is_some() && !runs);
        if self.queue.state() == LockState::Released || ends {
            return false;
        }
        self.wishes.want_step_down();
        true
    }

    /// The pod is ending, and everything in it ends with its grace period at the latest.
    ///
    /// # Errors
    /// When there is no pod.
    pub(crate) fn pod_ends(&mut self, now: BootInstant) -> Result<(), String> {
        let Some(grace) = self.policy.termination_grace else {
            return Err("this keeper is not in a pod: end it by a signal".to_owned());
        };
        let reserve = RESERVE_OF_GRACE.min(grace / 4);
        self.wishes.pod_ends(now + (grace - reserve));
        Ok(())
    }

    /// A postStart hook has failed. The container is ended because of it, as by a kubelet.
    pub(crate) fn post_start_failed(&mut self) {
        if matches!(self.application.state(), App::Granted { .. }) {
            self.next.get_or_insert(Next::End(Ending::Code(HOOK_FAILED)));
        }
    }

    pub fn end_wanted(&mut self, code: u8) {
        self.wishes.want_end(code);
    }

    /// The lock cannot be acquired, for a lasting reason that the lock itself does not know.
    pub(crate) fn refused(&mut self) {
        self.end_unless_ending(Ending::Refused);
    }

    fn greeted(&mut self, hello: Hello, now: BootInstant) {
        self.inheritance.greeted(hello.has_ticket, self.queue.is_new());
        self.wishes.container_ends(false);
        let Some(Tree { token, is_paused }) = hello.tree else {
            // It ended while the guard was away.
            if matches!(self.application.state(), App::OutOfSight { .. }) {
                self.ended_with_its_guard();
            }
            return self.application.nothing_runs();
        };
        self.told.greeted();
        self.watch.expect_nothing();
        self.application.found(token, is_paused, now);
        // A paused application is continued under a new token only.
        if is_paused && self.queue.is_ours(token) {
            self.next.get_or_insert(Next::QueueAgain);
        }
    }

    /// It ended without a report of the guard: that counts as an exit, too.
    fn ended_with_its_guard(&mut self) {
        if self.policy.on_exit == OnExit::Release {
            self.next.get_or_insert(Next::QueueAgain);
        }
        self.application.nothing_runs();
    }

    /// The guard stopped it: at our request, at its deadline, or before it could start.
    fn gone(&mut self, app: App) {
        self.application.nothing_runs();
        let next = match app {
            App::Stopping {
                cause: Cause::Wish, ..
            } => return,
            App::Granted { is_started: true, .. }
            | App::Stopping { is_started: true, .. }
            | App::Paused { .. } => self
                .policy
                .code_after_a_loss()
                .map_or(Next::QueueAgain, |code| Next::End(Ending::Code(code))),
            // Too late to start anything; a renewal may make up for it.
            App::Granted { .. } => {
                let deadline = self.told.take_deadline();
                return self.application.was_too_late(deadline);
            }
            _ => Next::QueueAgain,
        };
        self.next.get_or_insert(next);
    }

    fn exited(&mut self, code: u8, now: BootInstant) {
        self.application.nothing_runs();
        let again_at = self.application.again_at(now);
        if matches!(self.next, Some(Next::End(Ending::Refused))) {
            return;
        }
        let code = match (self.policy.kind, self.wishes.ending()) {
            // The keeper itself ends, not another container.
            (Kind::Wrap | Kind::Signal, Some(ending)) => ending,
            _ => code,
        };
        // A container ends with its application; the kubelet starts it again.
        let ends = self.wishes.ending().is_some()
            || self.policy.kind == Kind::Wrap
            || self.policy.restart == Restart::Never;
        if ends {
            self.next = Some(Next::End(Ending::Code(code)));
        } else if self.next.is_none() && self.policy.on_exit == OnExit::Hold {
            // A kubelet starts a container, with a back-off of its own.
            let start_at = (self.policy.kind != Kind::Signal).then_some(again_at);
            self.application.wait_until(start_at);
        } else {
            self.queue.pause_until(again_at);
            self.next.get_or_insert(Next::QueueAgain);
        }
    }
}
