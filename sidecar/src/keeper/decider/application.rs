//! What to do with the application: start it, move its deadlines, stop it.

use lockkeeper_lock::{BootInstant, FencingToken, LockState};

use super::{Act, App, Cause, Decider, Ending, Next, lease_file_until};
use crate::args::{OnLoss, OnSuspect};
use crate::exit::Exit;
use crate::guard::protocol::{Grant, ToGuard};
use crate::keeper::policy::Kind;

impl Decider {
    pub(super) fn decide_running(&mut self, token: FencingToken, now: BootInstant, acts: &mut Vec<Act>) {
        let Some((_, deadline)) = self.held(now).filter(|(held, _)| *held == token) else {
            return self.stop_without_the_lock(token, now, acts);
        };
        let is_wished = self.next.is_some()
            || self.wants_step_down
            || self.status.yield_requested
            // In `run` the application got the signal itself, and may do with it what it likes.
            || (self.ending.is_some() && self.policy.kind != Kind::Run)
            || self.stop_at().is_some_and(|moment| moment <= now);
        if is_wished {
            self.remove_lease(acts);
            self.next.get_or_insert(match (self.ending, self.policy.kind) {
                (Some(code), Kind::Wrap | Kind::Signal) => Next::End(Ending::Code(code)),
                (None, Kind::Signal) if self.gone_by.is_none() => {
                    Next::End(Ending::Code(Exit::GateAnew.code()))
                }
                _ => Next::QueueAgain,
            });
            let latest = self
                .gone_by
                .map_or(deadline, |gone_by| gone_by.max(now).min(deadline));
            let kill_at = latest.min(now + self.policy.stop_grace);
            acts.push(Act::Tell(ToGuard::Stop { token, kill_at }));
            self.guard_deadline = Some(kill_at);
            self.last_grant = Some(self.grant_until(token, kill_at));
            self.app = App::Stopping {
                token,
                cause: Cause::Wish,
            };
            return;
        }
        self.grant(token, deadline, false, now, acts);
        let is_suspect = self.is_suspect();
        if self.told_suspect.replace(is_suspect) != Some(is_suspect) {
            acts.push(Act::Tell(if is_suspect {
                ToGuard::Suspect { token }
            } else {
                ToGuard::Confirm { token }
            }));
        }
    }

    fn is_suspect(&self) -> bool {
        self.policy.on_suspect == OnSuspect::Pause && self.status.state == LockState::Suspended
    }

    fn stop_without_the_lock(&mut self, token: FencingToken, now: BootInstant, acts: &mut Vec<Act>) {
        self.remove_lease(acts);
        let is_ours = self.held_since.is_some_and(|(held, _)| held == token);
        let cause = if self.revoked == Some(token) || (is_ours && !self.is_started) {
            acts.push(Act::Tell(ToGuard::Revoke { token }));
            self.guard_deadline = Some(now);
            Cause::Loss
        } else if is_ours || self.policy.on_loss == OnLoss::Pause {
            // At the deadline the guard acts by itself; at the one that it knows.
            self.tell_an_earlier_deadline(token, now, acts);
            Cause::Deadline
        } else {
            // Started by a keeper before us, whose session nobody renews.
            let kill_at = now + self.policy.stop_grace;
            acts.push(Act::Tell(ToGuard::Stop { token, kill_at }));
            Cause::Wish
        };
        self.app = App::Stopping { token, cause };
    }

    pub(super) fn decide_starting(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        let may_start = self.next.is_none()
            && !self.wants_step_down
            && !self.status.yield_requested
            && self.ending.is_none()
            && self.gone_by.is_none()
            && self.start_at.is_none()
            && !self.is_suspect()
            && self.delayed_until().is_none_or(|moment| moment <= now);
        let is_new = |deadline: &BootInstant| self.too_late != Some(*deadline);
        let Some((token, deadline)) = self
            .held(now)
            .filter(|(_, deadline)| may_start && is_new(deadline))
        else {
            return self.remove_lease(acts);
        };
        // Nothing is started that would be stopped at once.
        if deadline.saturating_sub(self.policy.stop_grace) <= now {
            return self.remove_lease(acts);
        }
        self.app = App::Granted { token };
        self.is_started = false;
        self.told_suspect = Some(false);
        self.last_grant = None;
        self.grant(token, deadline, true, now, acts);
    }

    fn grant(
        &mut self,
        token: FencingToken,
        kill_at: BootInstant,
        start: bool,
        now: BootInstant,
        acts: &mut Vec<Act>,
    ) {
        let grant = self.grant_until(token, kill_at);
        let is_new = self.last_grant != Some(grant);
        // A guard beside the container removes the file, too, when it does not hear of a renewal in time.
        let may_be_gone = is_new && self.policy.kind == Kind::Signal;
        if now >= lease_file_until(grant) {
            self.remove_lease(acts);
        } else if self.lease_file.replace(token) != Some(token) || may_be_gone {
            acts.push(Act::WriteLease(token));
        }
        if is_new {
            self.guard_deadline = Some(kill_at);
            self.tell_grant(grant, start, acts);
        }
    }

    /// A server may grant less time than the one before, so that the deadline which the guard knows is too
    /// late. It is told the earlier one, or to act now: also when that has passed by the time that we
    /// hear of it, when the lock is lost by it, and when the application is being ended already.
    pub(super) fn tell_an_earlier_deadline(
        &mut self,
        token: FencingToken,
        now: BootInstant,
        acts: &mut Vec<Act>,
    ) {
        if self.held_since.is_none_or(|(held, _)| held != token) {
            return; // another keeper's, whose lease is not known
        }
        let deadline = self.status.deadline().filter(|_| self.revoked != Some(token));
        let kill_at = deadline.map_or(now, |deadline| deadline.max(now));
        if self.last_grant.is_none_or(|told| kill_at < told.kill_at) {
            let earlier = self.guard_deadline.map_or(kill_at, |known| known.min(kill_at));
            self.guard_deadline = Some(earlier);
            let grant = self.grant_until(token, kill_at);
            self.tell_grant(grant, false, acts);
        }
    }

    fn grant_until(&self, token: FencingToken, kill_at: BootInstant) -> Grant {
        Grant {
            token,
            generation: 0,
            start: false,
            pause: self.policy.on_loss == OnLoss::Pause,
            term_at: kill_at.saturating_sub(self.policy.stop_grace),
            kill_at,
        }
    }

    fn tell_grant(&mut self, grant: Grant, start: bool, acts: &mut Vec<Act>) {
        self.last_grant = Some(grant);
        self.generation = self.generation.wrapping_add(1);
        acts.push(Act::Tell(ToGuard::Grant(Grant {
            generation: self.generation,
            start,
            ..grant
        })));
    }

    pub(super) fn remove_lease(&mut self, acts: &mut Vec<Act>) {
        if self.lease_file.take().is_some() {
            acts.push(Act::RemoveLease);
        }
    }
}
