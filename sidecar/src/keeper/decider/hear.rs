//! What happened: events change what is known.

use lockkeeper_lock::{BootInstant, LockState, LockStatus, LossReason};

use super::{App, Ask, Cause, Decider, Ending, LONGEST_BACK_OFF, Next, RESERVE_OF_GRACE, SHORTEST_BACK_OFF};
use crate::args::{OnExit, Restart};
use crate::guard::protocol::{FromGuard, Hello};
use crate::keeper::policy::Kind;

/// Exit code of a container whose hook after the start has failed: that of nothing in particular.
const HOOK_FAILED: u8 = 1;

/// Number of SIGHUP, on all Linux.
const SIGHUP: u8 = 1;

impl Decider {
    /// The lock published a new status.
    pub fn lock_changed(&mut self, status: LockStatus, now: BootInstant) {
        if let (true, Some(token)) = (status.is_held(now), status.token)
            && self.held_since.is_none_or(|(old, _)| old != token)
        {
            self.held_since = Some((token, now));
            self.was_held = true;
            self.give_up_at = None;
        }
        match status.loss {
            None | Some(LossReason::DeadlineReached) => {}
            Some(loss) => {
                self.revoked = self.held_since.map(|(token, _)| token);
                if loss == LossReason::Refused {
                    self.end_unless_ending(Ending::Refused);
                }
            }
        }
        self.status = status;
    }

    /// A request to the lock has ended; `is_ok` is false when the ensemble refuses for good.
    pub fn lock_answered(&mut self, status: LockStatus, is_ok: bool, now: BootInstant) {
        let asked = self.asked.take();
        self.release_by = None;
        self.lock_changed(status, now);
        self.is_in_queue = is_ok && asked == Some(Ask::Contend);
        if !is_ok {
            self.end_unless_ending(Ending::Refused);
        } else if asked == Some(Ask::Release) {
            self.answer_is_due |= std::mem::take(&mut self.wants_step_down);
        }
    }

    /// A frame of the guard.
    pub fn guard_said(&mut self, frame: FromGuard, now: BootInstant) {
        match frame {
            FromGuard::Hello(hello) => self.greeted(hello, now),
            // The guard is in another container, which may end and start again as often as it likes.
            FromGuard::Signal { .. } if self.policy.kind == Kind::Wrap => {}
            // SIGHUP means many things to an application that runs. Before the first word of one it was for the guard.
            FromGuard::Signal { signo: SIGHUP }
                if self.is_started && matches!(self.app, App::Granted { .. }) => {}
            FromGuard::Signal { signo } => self.ending = Some(128 + signo),
            FromGuard::Started { token, .. }
            | FromGuard::Exited { token, .. }
            | FromGuard::Gone { token, .. }
            | FromGuard::Paused { token }
            | FromGuard::AtWork { token }
            | FromGuard::Survivors { token, .. }
            | FromGuard::StartFailed { token, .. } => {
                // What comes late of an older token says nothing about what runs now.
                if self.app.token() == Some(token) {
                    self.application_said(frame, now);
                }
            }
        }
    }

    fn application_said(&mut self, frame: FromGuard, now: BootInstant) {
        match (frame, self.app) {
            (FromGuard::Started { pid, .. }, _) => {
                // One that goes on after a pause is the same process.
                self.starts += u64::from(self.process.replace(pid) != Some(pid));
                self.started_at = Some(now);
                self.is_started = true;
            }
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
                self.app = App::Paused { token };
                self.next.get_or_insert(Next::QueueAgain);
            }
            (FromGuard::StartFailed { errno, .. }, _) => {
                self.nothing_runs();
                self.end_unless_ending(Ending::Code(crate::guard::exit_code_of_errno(errno)));
            }
            // It is not stopped: its time counts anew.
            (FromGuard::AtWork { .. }, _) => {
                self.guard_deadline = Some(now);
                self.kill_guard_at = None;
            }
            // It goes on trying, and the lock stays ours until it succeeds.
            (FromGuard::Survivors { token, count, pid }, app) => {
                self.is_sure_of_survivors = count > 0 || self.survivors.is_some();
                self.survivors = Some((count, pid));
                // A guard that is the first process of a container ends for it, and the kernel ends the rest.
                if self.policy.kind != Kind::Wrap {
                    self.guard_deadline = None;
                }
                if matches!(app, App::Granted { .. } | App::Paused { .. }) {
                    self.app = App::Stopping {
                        token,
                        cause: Cause::Deadline,
                    };
                }
            }
            _ => {}
        }
    }

    /// The guard's connection is over; [`Decider::guard_ended`] will tell the end of its process if that `is_watched`.
    pub fn guard_lost(&mut self, is_watched: bool) {
        self.last_grant = None;
        let deadline = match self.app {
            App::Absent | App::Idle => return self.app = App::Absent,
            App::OutOfSight { deadline, .. } => deadline,
            App::Granted { .. } | App::Paused { .. } | App::Stopping { .. } => self.guard_deadline,
        };
        self.app = App::OutOfSight { deadline, is_watched };
    }

    /// The process of the guard has ended; and with it everything that it started, if there `is_proof` of that.
    pub fn guard_ended(&mut self, is_proof: bool) {
        let App::OutOfSight { deadline, .. } = self.app else {
            return;
        };
        if is_proof {
            self.ended_with_its_guard();
            self.app = App::Absent;
        } else {
            self.app = App::OutOfSight {
                deadline,
                is_watched: false,
            };
        }
    }

    /// Another guard takes the place of one that may have left something behind. Nothing is started, and nobody else
    /// is let in, before the session of that one is over.
    pub fn guard_succeeded(&mut self) {
        if matches!(self.app, App::OutOfSight { .. }) {
            self.nothing_runs();
            self.app = App::Absent;
            self.is_in_doubt = true;
        }
    }

    /// Somebody says that the lock is not to wait for what has outlived its deadline.
    ///
    /// # Errors
    /// When nothing has.
    pub fn give_up_survivors(&mut self, now: BootInstant) -> Result<(), String> {
        if self.survivors(now).is_none() {
            return Err(
                "nothing is known to have outlived its deadline, so there is nothing to give up".to_owned(),
            );
        }
        self.is_in_doubt = true;
        self.is_given_up = true;
        Ok(())
    }

    /// Somebody wants the lock handed over. False when there is nothing to hand over.
    pub fn step_down_wanted(&mut self) -> bool {
        let runs = matches!(self.app, App::Granted { .. });
        let ends = matches!(self.next, Some(Next::End(_))) || (self.ending.is_some() && !runs);
        if self.status.state == LockState::Released || ends {
            return false;
        }
        self.wants_step_down = true;
        true
    }

    /// The pod is ending, and everything in it ends with its grace period at the latest.
    ///
    /// # Errors
    /// When there is no pod.
    pub fn pod_ends(&mut self, now: BootInstant) -> Result<(), String> {
        let Some(grace) = self.policy.termination_grace else {
            return Err("this keeper is none of a pod: end it by a signal".to_owned());
        };
        let reserve = RESERVE_OF_GRACE.min(grace / 4);
        self.gone_by.get_or_insert(now + (grace - reserve));
        Ok(())
    }

    /// A hook after the start has failed. The container is ended for it, as by a kubelet.
    pub fn post_start_failed(&mut self) {
        if matches!(self.app, App::Granted { .. }) {
            self.next.get_or_insert(Next::End(Ending::Code(HOOK_FAILED)));
        }
    }

    /// The process is asked to end.
    pub fn end_wanted(&mut self, code: u8) {
        self.ending = Some(code);
    }

    /// The lock is not to be had, for a reason that lasts and that the lock itself does not know.
    pub fn refused(&mut self) {
        self.end_unless_ending(Ending::Refused);
    }

    fn greeted(&mut self, hello: Hello, now: BootInstant) {
        let Some(token) = hello.token else {
            // It ended while the guard was away.
            if matches!(self.app, App::OutOfSight { .. }) {
                self.ended_with_its_guard();
            }
            return self.nothing_runs();
        };
        self.last_grant = None;
        self.guard_deadline = None;
        self.survivors = None;
        self.told_suspect = None;
        self.is_started = true;
        self.started_at.get_or_insert(now);
        self.app = if hello.paused {
            // It goes on under a new token only.
            if self.held_since.is_some_and(|(held, _)| held == token) {
                self.next.get_or_insert(Next::QueueAgain);
            }
            App::Paused { token }
        } else {
            App::Granted { token }
        };
    }

    /// Without a last word: that is an exit, too.
    fn ended_with_its_guard(&mut self) {
        if self.policy.on_exit == OnExit::Release {
            self.next.get_or_insert(Next::QueueAgain);
        }
        self.nothing_runs();
    }

    /// The next one that starts is another one, also if it gets the same process number: each container
    /// counts its processes anew.
    fn nothing_runs(&mut self) {
        self.app = App::Idle;
        self.process = None;
        self.survivors = None;
        self.is_given_up = false;
    }

    /// The guard stopped it: as we asked, at its deadline, or before it could start.
    fn gone(&mut self, app: App) {
        self.nothing_runs();
        let next = match app {
            App::Stopping {
                cause: Cause::Wish, ..
            } => return,
            _ if self.is_started => self
                .policy
                .code_after_a_loss()
                .map_or(Next::QueueAgain, |code| Next::End(Ending::Code(code))),
            // Too late to start anything; a renewal may make up for it.
            App::Granted { .. } => {
                self.too_late = self.last_grant.take().map(|grant| grant.kill_at);
                return;
            }
            _ => Next::QueueAgain,
        };
        self.next.get_or_insert(next);
    }

    fn exited(&mut self, code: u8, now: BootInstant) {
        self.nothing_runs();
        let ran_long = self
            .started_at
            .is_some_and(|started| now.saturating_since(started) >= LONGEST_BACK_OFF);
        if ran_long {
            self.back_off = SHORTEST_BACK_OFF;
        }
        let again_at = now + self.back_off;
        self.back_off = (self.back_off * 2).min(LONGEST_BACK_OFF);
        if matches!(self.next, Some(Next::End(Ending::Refused))) {
            return;
        }
        let code = match (self.policy.kind, self.ending) {
            // Our end, not that of another container.
            (Kind::Wrap | Kind::Signal, Some(ending)) => ending,
            _ => code,
        };
        // A container ends with its application; the kubelet starts it again.
        let ends =
            self.ending.is_some() || self.policy.kind == Kind::Wrap || self.policy.restart == Restart::Never;
        if ends {
            self.next = Some(Next::End(Ending::Code(code)));
        } else if self.next.is_none() && self.policy.on_exit == OnExit::Hold {
            // A kubelet starts a container, with a back-off of its own.
            self.start_at = (self.policy.kind != Kind::Signal).then_some(again_at);
        } else {
            self.contend_at = Some(again_at);
            self.next.get_or_insert(Next::QueueAgain);
        }
    }
}

impl App {
    /// The token whose end the guard has still to tell.
    fn token(self) -> Option<lockkeeper_lock::FencingToken> {
        match self {
            Self::Granted { token } | Self::Paused { token } | Self::Stopping { token, .. } => Some(token),
            Self::Absent | Self::Idle | Self::OutOfSight { .. } => None,
        }
    }
}
