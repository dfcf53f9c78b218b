//! What to do with the application: start it, move its deadlines, stop it.

use lockkeeper_daemon::exit::Exit;
use lockkeeper_lock::{BootInstant, FencingToken, LockState};

use super::Decider;
use super::act::{Act, Ending, Next};
use super::application::{App, Cause};
use super::told::lease_file_until;
use crate::args::{OnLoss, OnSuspect};
use crate::keeper::policy::Kind;
use crate::link::protocol::{Grant, ToGuard};

impl Decider {
    pub(super) fn decide_running(
        &mut self,
        token: FencingToken,
        is_started: bool,
        now: BootInstant,
        acts: &mut Vec<Act>,
    ) {
        let held = self.queue.held(now).filter(|(held, _)| *held == token);
        let goes_on = self.goes_on(token);
        // While the lock is on its way, the guard ends what runs at the deadline that it has from the keeper before us.
        let deadline = match held {
            Some((_, deadline)) => deadline,
            None if goes_on => now + self.policy.session_timeout,
            None => return self.stop_without_the_lock(token, is_started, now, acts),
        };
        if held.is_some() {
            self.inheritance.arrived();
        }
        let is_wished_away = self.next.is_some()
            || self.wishes.has_step_down()
            || self.queue.status().yield_requested
            || self.stop_at().is_some_and(|moment| moment <= now);
        let leaves = !is_wished_away && self.leaves_it_to_the_next();
        if leaves && self.wishes.leave_at(now) <= now {
            let code = self.wishes.ending().unwrap_or_default();
            return self.end(Ending::Code(code), acts);
        }
        // In `run` the application got the signal itself, and decides how to react.
        let is_ended = self.wishes.ending().is_some() && self.policy.kind != Kind::Run;
        let is_wished = is_wished_away || (is_ended && !leaves);
        if is_wished {
            self.remove_lease(acts);
            self.next
                .get_or_insert(match (self.wishes.ending(), self.policy.kind) {
                    (Some(code), Kind::Wrap | Kind::Signal) => Next::End(Ending::Code(code)),
                    (None, Kind::Signal) if self.wishes.gone_by().is_none() => {
                        Next::End(Ending::Code(Exit::GateAnew.code()))
                    }
                    _ => Next::QueueAgain,
                });
            let latest = self
                .wishes
                .gone_by()
                .map_or(deadline, |gone_by| gone_by.max(now).min(deadline));
            let kill_at = latest.min(now + self.policy.stop_grace);
            acts.push(Act::Tell(ToGuard::Stop { token, kill_at }));
            // The guard takes the earlier moment, too: also that of a keeper before us, which is not in `latest`.
            self.watch.expect_at_latest(kill_at);
            self.told.stop(self.grant_until(token, kill_at));
            self.application.stop(Cause::Wish);
            return;
        }
        if held.is_none() {
            return;
        }
        self.grant(token, deadline, false, now, acts);
        let is_suspect = self.is_suspect();
        if self.told.suspect(is_suspect) {
            acts.push(Act::Tell(if is_suspect {
                ToGuard::Suspect { token }
            } else {
                ToGuard::Confirm { token }
            }));
        }
    }

    /// Whether the application that runs under this token waits for the lock that was left with it.
    fn goes_on(&self, token: FencingToken) -> bool {
        self.inheritance
            .goes_on(token, self.queue.status(), self.queue.asked())
    }

    /// Whether the keeper alone is asked to end, so that the next one can go on: its container is replaced, for example
    /// by one of another image. The kubelet calls the hook before the stop then, too, which says that the pod ends. In a
    /// pod that does end, the application's containers have ended before the sidecar is asked to.
    fn leaves_it_to_the_next(&self) -> bool {
        self.policy.kind == Kind::Wrap && self.wishes.ends_alone() && self.inheritance.is_given()
    }

    fn is_suspect(&self) -> bool {
        self.policy.on_suspect == OnSuspect::Pause && self.queue.state() == LockState::Suspended
    }

    fn stop_without_the_lock(
        &mut self,
        token: FencingToken,
        is_started: bool,
        now: BootInstant,
        acts: &mut Vec<Act>,
    ) {
        self.remove_lease(acts);
        let is_ours = self.queue.is_ours(token);
        // A lock that was left to us is gone before the deadline: another contender may have it already.
        let is_revoked = self.queue.is_revoked(token) || self.inheritance.is_left(token);
        let cause = if is_revoked || (is_ours && !is_started) {
            acts.push(Act::Tell(ToGuard::Revoke { token }));
            self.watch.expect(now);
            Cause::Loss
        } else if is_ours || self.policy.on_loss == OnLoss::Pause {
            // At the deadline that the guard knows, it acts by itself.
            self.tell_an_earlier_deadline(token, now, acts);
            Cause::Deadline
        } else {
            // A keeper before us started it, and no keeper renews that session.
            let kill_at = now + self.policy.stop_grace;
            acts.push(Act::Tell(ToGuard::Stop { token, kill_at }));
            Cause::Wish
        };
        self.application.stop(cause);
    }

    pub(super) fn decide_starting(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        let may_start = self.next.is_none()
            && !self.wishes.has_step_down()
            && !self.queue.status().yield_requested
            && self.wishes.ending().is_none()
            && self.wishes.gone_by().is_none()
            && self.application.start_at().is_none()
            && !self.is_suspect()
            && self.delayed_until().is_none_or(|moment| moment <= now);
        let Some((token, deadline)) = self
            .queue
            .held(now)
            .filter(|(_, deadline)| may_start && self.application.is_in_time(*deadline))
        else {
            return self.remove_lease(acts);
        };
        // Nothing is started that would be stopped at once.
        if deadline.saturating_sub(self.policy.stop_grace) <= now {
            return self.remove_lease(acts);
        }
        self.application.becomes(App::Granted {
            token,
            is_started: false,
        });
        self.told.begin();
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
        let is_new = self.told.is_news(grant);
        // A guard beside the container removes the file, too, when it does not hear of a renewal in time.
        let may_be_gone = is_new && self.policy.kind == Kind::Signal;
        if now >= lease_file_until(grant) {
            self.remove_lease(acts);
        } else if self.lease_file.replace(token) != Some(token) || may_be_gone {
            acts.push(Act::WriteLease(token));
        }
        if is_new {
            self.watch.expect(kill_at);
            acts.push(Act::Tell(self.told.grant(grant, start)));
        }
    }

    /// A server may grant less time than the one before, so that the deadline which the guard knows is too
    /// late. The keeper sends the earlier one, or the order to act now: also if it has passed already, if the lock is
    /// lost by it, or if the application is being ended. So it does if a lock that was left to it is gone: another
    /// contender may have it already.
    pub(super) fn tell_an_earlier_deadline(
        &mut self,
        token: FencingToken,
        now: BootInstant,
        acts: &mut Vec<Act>,
    ) {
        let is_ours = self.queue.is_ours(token);
        if !is_ours && (self.goes_on(token) || !self.inheritance.is_left(token)) {
            return; // another keeper's, whose lease is not known
        }
        let deadline = self.queue.status().deadline();
        let deadline = deadline.filter(|_| is_ours && !self.queue.is_revoked(token));
        let kill_at = deadline.map_or(now, |deadline| deadline.max(now));
        if self.told.is_earlier(kill_at) {
            self.watch.expect_at_latest(kill_at);
            let grant = self.grant_until(token, kill_at);
            acts.push(Act::Tell(self.told.grant(grant, false)));
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

    pub(super) fn remove_lease(&mut self, acts: &mut Vec<Act>) {
        if self.lease_file.take().is_some() {
            acts.push(Act::RemoveLease);
        }
    }
}
