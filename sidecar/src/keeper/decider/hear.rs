//! What happened: events change what is known.

use lockkeeper_lock::{BootInstant, LockState, LockStatus, LossReason};

use super::{App, Ask, Cause, Decider, Ending, LONGEST_BACK_OFF, Next, RESERVE_OF_GRACE, SHORTEST_BACK_OFF};
use crate::args::{OnExit, Restart};
use crate::guard::protocol::FromGuard;
use crate::keeper::policy::Kind;

/// Exit code of a container whose hook after the start has failed: that of nothing in particular.
const HOOK_FAILED: u8 = 1;

/// Number of SIGHUP, on all Linux.
const SIGHUP: u8 = 1;

impl Decider {
    pub(in crate::keeper) fn lock_changed(&mut self, status: LockStatus, now: BootInstant) {
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
    pub(in crate::keeper) fn lock_answered(&mut self, status: LockStatus, is_ok: bool, now: BootInstant) {
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

    pub(in crate::keeper) fn guard_said(&mut self, frame: FromGuard, now: BootInstant) {
        match frame {
            FromGuard::Hello { token: None, .. } => self.hello_of_an_idle_guard(),
            FromGuard::Hello {
                token: Some(token),
                paused,
                ..
            } => {
                self.last_grant = None;
                self.guard_deadline = None;
                self.told_suspect = None;
                self.is_started = true;
                self.started_at.get_or_insert(now);
                self.app = if paused {
                    // It goes on under a new token only.
                    if self.held_since.is_some_and(|(held, _)| held == token) {
                        self.next.get_or_insert(Next::QueueAgain);
                    }
                    App::Paused { token }
                } else {
                    App::Granted { token }
                };
            }
            // The guard is in another container, which may end and start again as often as it likes.
            FromGuard::Signal { .. } if self.policy.kind == Kind::Wrap => {}
            // SIGHUP means many things to an application that runs.
            FromGuard::Signal { signo: SIGHUP } if matches!(self.app, App::Granted { .. }) => {}
            FromGuard::Signal { signo } => self.ending = Some(128 + signo),
            FromGuard::Started { token, .. }
            | FromGuard::Exited { token, .. }
            | FromGuard::Gone { token, .. }
            | FromGuard::Paused { token }
            | FromGuard::Survivors { token }
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
                self.app = App::Idle;
                self.end_unless_ending(Ending::Code(crate::guard::exit_code_of_errno(errno)));
            }
            // It goes on trying, and the lock stays ours until it succeeds.
            (FromGuard::Survivors { token }, app) => {
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

    pub(in crate::keeper) fn guard_lost(&mut self) {
        self.last_grant = None;
        self.app = match self.app {
            App::Absent | App::Idle => App::Absent,
            App::OutOfSight { deadline } => App::OutOfSight { deadline },
            App::Granted { .. } | App::Paused { .. } | App::Stopping { .. } => App::OutOfSight {
                deadline: self.guard_deadline,
            },
        };
    }

    /// Somebody wants the lock handed over. False when there is nothing to hand over.
    pub(in crate::keeper) fn step_down_wanted(&mut self) -> bool {
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
    pub(in crate::keeper) fn pod_ends(&mut self, now: BootInstant) -> Result<(), String> {
        let Some(grace) = self.policy.termination_grace else {
            return Err("this keeper is none of a pod: end it by a signal".to_owned());
        };
        let reserve = RESERVE_OF_GRACE.min(grace / 4);
        self.gone_by.get_or_insert(now + (grace - reserve));
        Ok(())
    }

    /// A hook after the start has failed. The container is ended for it, as by a kubelet.
    pub(in crate::keeper) fn post_start_failed(&mut self) {
        if matches!(self.app, App::Granted { .. }) {
            self.next.get_or_insert(Next::End(Ending::Code(HOOK_FAILED)));
        }
    }

    /// The process is asked to end.
    pub(in crate::keeper) fn end_wanted(&mut self, code: u8) {
        self.ending = Some(code);
    }

    fn hello_of_an_idle_guard(&mut self) {
        // Its predecessor ended with its container, without a last word: that is an exit, too.
        if matches!(self.app, App::OutOfSight { .. }) && self.policy.on_exit == OnExit::Release {
            self.next.get_or_insert(Next::QueueAgain);
        }
        self.nothing_runs();
    }

    /// The next one that starts is another one, also if it gets the same process number: each container
    /// counts its processes anew.
    fn nothing_runs(&mut self) {
        self.app = App::Idle;
        self.process = None;
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
                self.last_grant = None;
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
