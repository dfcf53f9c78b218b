//! What the keeper's frames and a user's signals change.

use lockkeeper_daemon::exit::killed_by;
use lockkeeper_lock::{BootInstant, FencingToken};

use super::Schedule;
use super::actions::{Action, Actions, Sweep};
use super::event::Mode;
use super::exit::{EXIT_REFUSED, EXIT_SOFTWARE};
use super::phase::{Active, Doubt, Outcome, Phase};
use super::times::START_LOOK;
use crate::guard::signals;
use crate::link::protocol::{FromGuard, Grant, Kept, Refusal, ToGuard};

impl Schedule {
    pub(super) fn frame(&mut self, frame: ToGuard, now: BootInstant, out: &mut Actions) {
        // Another guard may end. What else this guard is refused for stays.
        self.is_refused = matches!(frame, ToGuard::Refuse { why } if why != Refusal::Another);
        match frame {
            ToGuard::Grant(grant) => self.grant(grant, now, out),
            ToGuard::Suspect { token } => self.doubt(token, Doubt::Suspected, now, out),
            ToGuard::Confirm { token } => self.doubt(token, Doubt::Confirmed, now, out),
            ToGuard::Stop { token, kill_at } => match &mut self.phase {
                Phase::Active(active) if active.grant.token == token => {
                    active.held_until.get_or_insert(active.grant.kill_at);
                    active.grant.kill_at = active.grant.kill_at.min(kill_at);
                    active.terminate(out);
                    self.tick(now, out);
                }
                // It is paused, and its deadline has passed: it may not run, not even to end by itself.
                _ => self.revoke(token, now, out),
            },
            ToGuard::Revoke { token } => self.revoke(token, now, out),
            ToGuard::Keep(half) => self.kept.take(half),
            // The keeper goes on, and knows how the application has ended.
            ToGuard::Forget => {
                self.kept = Kept::default();
                self.ended = None;
            }
            // A guard that has something running keeps its deadlines, and tries again.
            ToGuard::Refuse { .. } => match self.phase {
                Phase::Idle => out.push(Action::Exit(EXIT_REFUSED)),
                // This keeper never resumes it.
                Phase::Pausing { token, .. } | Phase::Paused { token, .. } if self.is_refused => {
                    self.kill(token, Outcome::Gone(None), now, out);
                }
                _ => {}
            },
            // It says nothing about what the keeper before it has granted or stopped, and another one may come.
            ToGuard::CannotBegin { code } if self.is_successor => self.cannot_begin = Some(code),
            ToGuard::Finish { code } | ToGuard::CannotBegin { code } => match &mut self.phase {
                // Nor does one that has granted nothing yet.
                Phase::Active(_) if self.is_successor && self.newest_grant.is_none() => {}
                Phase::Idle => out.push(Action::Exit(code)),
                Phase::Killing(killing) => {
                    killing.next = None;
                    killing.finish = Some(code);
                }
                Phase::Active(Active {
                    grant: Grant { token, .. },
                    ..
                })
                | Phase::Pausing { token, .. }
                | Phase::Paused { token, .. } => {
                    let token = *token;
                    self.kill(token, Outcome::Gone(None), now, out).finish = Some(code);
                }
            },
        }
    }

    fn doubt(&mut self, token: FencingToken, doubt: Doubt, now: BootInstant, out: &mut Actions) {
        if let Phase::Active(active) = &mut self.phase
            && active.grant.token == token
        {
            active.doubt(doubt, now, out);
        }
    }

    fn grant(&mut self, grant: Grant, now: BootInstant, out: &mut Actions) {
        if !grant.is_newer_than(self.newest_grant) {
            return;
        }
        self.newest_grant = Some(grant.generation);
        match &mut self.phase {
            Phase::Idle => {
                if grant.start {
                    self.begin(grant, now, out);
                }
            }
            Phase::Active(active) if active.grant.token == grant.token => active.renew(&grant, now, out),
            Phase::Active(Active {
                grant: Grant { token, .. },
                ..
            }) => {
                let old = *token;
                if grant.start {
                    self.kill(old, Outcome::Gone(None), now, out).next = Some(grant);
                }
            }
            Phase::Pausing { token, pid, .. } | Phase::Paused { token, pid, .. } => {
                if *token == grant.token || !grant.start {
                    return;
                }
                if !grant.can_start(now) {
                    out.push(Action::Report(FromGuard::Gone {
                        token: grant.token,
                        code: None,
                        had_sigterm: false,
                    }));
                } else {
                    let pid = *pid;
                    self.phase = Phase::Active(Active {
                        pid,
                        is_started: true,
                        ..Active::new(grant)
                    });
                    out.push(Action::Sweep(Sweep::Continue));
                    out.push(Action::Report(FromGuard::Started {
                        token: grant.token,
                        pid,
                    }));
                }
            }
            Phase::Killing(killing) => match &mut killing.next {
                Some(next) if next.token == grant.token => next.renew(&grant),
                _ if grant.token == killing.token => {
                    killing.held_until = killing.held_until.map(|until| until.min(grant.kill_at));
                }
                _ if grant.start && grant.token != killing.token && killing.finish.is_none() => {
                    killing.next = Some(grant);
                }
                _ => {}
            },
        }
    }

    /// Starts the application under `grant`, unless it is too late or a user wants the guard to end.
    pub(super) fn begin(&mut self, grant: Grant, now: BootInstant, out: &mut Actions) {
        if grant.can_start(now) && self.ending.is_none() {
            self.ended = None;
            self.phase = Phase::Active(Active::new(grant));
            self.watch.after(now, START_LOOK);
            out.push(Action::Start(grant.token));
        } else {
            self.never_began(grant.token, now, out);
        }
    }

    fn revoke(&mut self, token: FencingToken, now: BootInstant, out: &mut Actions) {
        match &mut self.phase {
            Phase::Active(Active {
                grant: Grant { token: current, .. },
                ..
            })
            | Phase::Pausing { token: current, .. }
            | Phase::Paused { token: current, .. }
                if *current == token =>
            {
                self.kill(token, Outcome::Gone(None), now, out);
            }
            // The keeper hears that nothing runs under this token when nothing runs at all.
            Phase::Killing(killing) => {
                killing.next.take_if(|next| next.token == token);
                killing.token = token;
                killing.held_until = None;
            }
            _ => self.never_began(token, now, out),
        }
    }

    pub(super) fn keeper_lost(&mut self, now: BootInstant, out: &mut Actions) {
        self.connected = false;
        if let Phase::Killing(killing) = &mut self.phase {
            // The next keeper hears of one token alone.
            killing.next = None;
        }
        if self.returns && self.ending.is_none() {
            return;
        }
        match &mut self.phase {
            Phase::Idle => out.push(Action::Exit(match (self.last_code, self.ending) {
                (Some(code), _) => code,
                (None, Some(signo)) => killed_by(signo),
                (None, None) => self.cannot_begin.unwrap_or(EXIT_SOFTWARE),
            })),
            Phase::Killing(_) => {}
            // Losing the keeper is not losing the lock: on to the deadline.
            Phase::Active(_) => {}
            // No new keeper will come, so nothing could ever resume it.
            Phase::Pausing { token, .. } | Phase::Paused { token, .. } => {
                let token = *token;
                self.kill(token, Outcome::Gone(None), now, out);
            }
        }
    }

    /// Whether an application runs that was not told to end, and so may handle signals. While the rest of it is
    /// killed, its main process has ended already.
    fn application_hears(&self) -> bool {
        matches!(self.phase, Phase::Active(active) if active.is_started && !active.is_stopping())
    }

    pub(super) fn signal(&mut self, signo: u8, to_group: bool, now: BootInstant, out: &mut Actions) {
        let is_hangup_of_ours = signals::hangs_up(signo) && !self.application_hears();
        if signals::asks_to_end(signo) || is_hangup_of_ours {
            out.push(Action::Report(FromGuard::EndWanted { signo }));
        }
        let ends = signals::asks_to_end(signo);
        match &mut self.phase {
            Phase::Idle => {
                if signals::asks_to_end(signo) || signals::hangs_up(signo) {
                    if self.has_keeper_elsewhere() || !self.connected || self.ending.is_some() {
                        out.push(Action::Exit(self.last_code.unwrap_or(killed_by(signo))));
                    }
                    self.ending = Some(signo);
                }
            }
            // The container gets its signals from the container runtime.
            Phase::Active(active) if self.mode == Mode::Container => {
                if ends && !self.connected {
                    let token = active.grant.token;
                    self.kill(token, Outcome::Gone(None), now, out).finish = Some(killed_by(signo));
                }
            }
            Phase::Active(active) => {
                // A user's SIGCONT must not undo what the keeper asked for.
                let undoes_pause = signals::resumes(signo) && active.suspended.is_some();
                if !to_group && !undoes_pause {
                    out.push(Action::Forward(signo));
                }
                if ends {
                    self.ending = Some(signo);
                    active.term_forwarded |= signals::is_term(signo);
                    active.resume(out);
                }
            }
            Phase::Pausing { token, .. } | Phase::Paused { token, .. } => {
                if ends {
                    // It may not run, not even to end by itself.
                    let token = *token;
                    self.ending = Some(signo);
                    self.kill(token, Outcome::Gone(None), now, out);
                } else if self.mode != Mode::Container && !to_group && !signals::resumes(signo) {
                    out.push(Action::Forward(signo));
                }
            }
            Phase::Killing(_) => {
                if ends {
                    self.ending = Some(signo);
                }
            }
        }
    }
}
