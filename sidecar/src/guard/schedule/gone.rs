//! When the application counts as gone: what the guard sees of its processes, and what that changes.

use lockkeeper_daemon::exit::{Exit, killed_by};
use lockkeeper_lock::BootInstant;

use super::Schedule;
use super::actions::{Action, Actions, Sight};
use super::event::Mode;
use super::phase::{Killing, Outcome, Phase, Suspended};
use super::times::{AT_WORK_EVERY, PATIENCE, PAUSED_LOOK, SURVIVORS_EVERY};
use crate::link::protocol::FromGuard;

impl Schedule {
    pub(super) fn started(&mut self, pid: u32, out: &mut Actions) {
        if let Phase::Active(active) = &mut self.phase {
            active.pid = pid;
            active.is_started = true;
            out.push(Action::Report(FromGuard::Started {
                token: active.grant.token,
                pid,
            }));
        }
    }

    pub(super) fn main_exited(&mut self, code: u8, now: BootInstant, out: &mut Actions) {
        match &mut self.phase {
            Phase::Active(active) => {
                let by_itself = !active.told_to_end;
                let outcome = if by_itself {
                    Outcome::Exited(code)
                } else {
                    Outcome::Gone(Some(code))
                };
                let token = active.grant.token;
                let held_until = active.held_until.unwrap_or(active.grant.kill_at);
                self.kill(token, outcome, now, out).held_until = Some(held_until);
            }
            // Another process sent it SIGKILL: the rest must not stay behind.
            Phase::Pausing { token, .. } | Phase::Paused { token, .. } => {
                let token = *token;
                self.kill(token, Outcome::Exited(code), now, out);
            }
            Phase::Idle | Phase::Killing(_) => {}
        }
    }

    pub(super) fn saw(&mut self, sight: Sight, now: BootInstant, out: &mut Actions) {
        match &mut self.phase {
            Phase::Idle => {
                if self.mode == Mode::Container {
                    self.saw_a_container(sight, now, out);
                }
            }
            Phase::Active(active) => {
                if let Some(Suspended::Sweeping { since, .. }) = active.suspended {
                    // Nothing is lost yet: the deadline will end what still runs.
                    if !sight.unstopped || now - since >= PATIENCE {
                        active.suspended = Some(Suspended::Settled);
                    }
                }
                if self.mode == Mode::Container {
                    self.saw_a_container(sight, now, out);
                }
            }
            Phase::Pausing {
                token,
                pid,
                since,
                tell_at,
                ..
            } => {
                let (token, pid, since) = (*token, *pid, *since);
                if !sight.unstopped && sight.alive {
                    self.phase = Phase::Paused {
                        token,
                        pid,
                        look_at: now + PAUSED_LOOK,
                    };
                    out.push(Action::Report(FromGuard::Paused { token }));
                } else if !sight.alive || now - since >= PATIENCE {
                    self.kill(token, Outcome::Gone(None), now, out);
                } else if self.mode != Mode::Pid1 && now >= *tell_at {
                    *tell_at = now + AT_WORK_EVERY;
                    out.push(Action::Report(FromGuard::AtWork { token }));
                }
            }
            Phase::Paused { token, pid, .. } => {
                let (token, pid) = (*token, *pid);
                if sight.has_woken() || !sight.alive {
                    self.kill(token, Outcome::Gone(None), now, out);
                } else if sight.unstopped {
                    // An exec probe, or a command that a user executes there: it is stopped like the rest.
                    self.pause(token, pid, now, out);
                }
            }
            Phase::Killing(killing) => {
                if !sight.alive {
                    let killing = *killing;
                    self.gone(killing, now, out);
                } else if now >= killing.last_resort_at() {
                    if now >= killing.tell_at {
                        killing.tell_at = now + SURVIVORS_EVERY;
                        out.push(Action::ReportSurvivors(killing.token));
                    }
                    if self.mode == Mode::Pid1 {
                        // The kernel then kills all that is left in the PID namespace, of every
                        // user. No other way is as sure.
                        out.push(Action::Exit(killing.finish.unwrap_or(self.loss_code)));
                    }
                } else if self.mode != Mode::Pid1 && now >= killing.tell_at {
                    killing.tell_at = (now + AT_WORK_EVERY).min(killing.last_resort_at());
                    out.push(Action::Report(FromGuard::AtWork { token: killing.token }));
                }
            }
        }
    }

    /// The tree is gone: report it, and go on or end.
    fn gone(&mut self, killing: Killing, now: BootInstant, out: &mut Actions) {
        let token = killing.token;
        self.phase = Phase::Idle;
        self.has_cleared = true;
        self.watch.shortest(now);
        let (report, own_code, code) = match killing.outcome {
            Outcome::Gone(code) => {
                let ended = self.ending.map(|signo| code.unwrap_or(killed_by(signo)));
                let gone = FromGuard::Gone {
                    token,
                    code,
                    had_sigterm: killing.had_sigterm,
                };
                (gone, None, ended.unwrap_or(self.loss_code))
            }
            Outcome::Exited(code) => (FromGuard::Exited { token, code }, Some(code), code),
            Outcome::StartFailed(errno) => {
                let code = Exit::of_errno(errno).code();
                (FromGuard::StartFailed { token, errno }, Some(code), code)
            }
        };
        out.push(Action::Report(report));
        self.last_code = Some(code);
        self.ended = (!self.is_elsewhere).then_some(report);

        // A guard whose keeper is in another container ends by itself, since the keeper does not wait for the exit
        // code. In `run` the keeper still has to release the lock.
        let ends_on_signal =
            self.ending.is_some() && (self.has_keeper_elsewhere() || !(self.connected || self.returns));
        // A keeper that is a child of ours has another one in its place soon, which hears how this has ended.
        let ends_alone = own_code.is_some() && self.is_elsewhere;
        let nobody_to_ask = !self.connected && (ends_alone || !self.returns);
        if let Some(code) = killing.finish {
            out.push(Action::Exit(code));
        } else if ends_on_signal || (nobody_to_ask && killing.next.is_none()) {
            out.push(Action::Exit(code));
        } else if let Some(next) = killing.next {
            self.begin(next, now, out);
        }
    }
}
