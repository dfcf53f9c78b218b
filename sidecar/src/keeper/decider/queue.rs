//! What to do with the place in the queue while nothing runs: get one, give it up, end.

use lockkeeper_lock::{BootInstant, LockState, LockStatus, LossReason};

use super::{Act, App, Ask, Decider, Ending, Next, patience_for_release};
use crate::args::OnExit;
use crate::keeper::policy::Kind;

impl Decider {
    /// Nobody can say whether something runs: nothing is released. While the guard's process is known to live the
    /// lock is kept: it comes back, or its end is told.
    pub(super) fn decide_out_of_sight(
        &mut self,
        deadline: Option<BootInstant>,
        is_watched: bool,
        now: BootInstant,
        acts: &mut Vec<Act>,
    ) {
        self.note_a_refusal();
        let is_refused = self.next == Some(Next::End(Ending::Refused));
        if let Some(code) = self.ending {
            self.end(Ending::Code(code), acts);
        } else if is_refused {
            self.end(Ending::Refused, acts);
        } else if is_watched {
            // Nothing to do before its word, or its end.
        } else if self.status.state == LockState::Lost {
            self.abandon(acts);
        } else if self.policy.on_exit == OnExit::Release
            && self.status.is_held(now)
            && deadline.is_some_and(|deadline| deadline <= now)
        {
            // It ended by now, with its container, or else by the guard. The others need not wait
            // for a container that may never come back, but for the end of the session.
            self.abandon(acts);
        }
    }

    pub(super) fn decide_queue(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        self.note_a_refusal();
        self.choose_next(now);
        if let Some(asked) = self.asked {
            return self.decide_waiting(asked, now, acts);
        }
        let is_end = matches!(self.next, Some(Next::End(_)));
        // The keeper and its lock outlive the end of the application's container.
        if is_end && self.ends_the_container() && self.holds_over_the_end(now) {
            return self.end_the_container(acts);
        }
        match self.status.state {
            LockState::Released => self.decide_out(acts),
            _ if self.next.is_some() => self.ask_for_release(now, acts),
            _ => {}
        }
    }

    /// Out of the queue without our doing: a request that nobody waited for was refused for good.
    fn note_a_refusal(&mut self) {
        let is_thrown_out =
            self.is_in_queue && self.asked.is_none() && self.status.state == LockState::Released;
        if is_thrown_out || self.status.loss == Some(LossReason::Refused) {
            self.end_unless_ending(Ending::Refused);
        }
    }

    /// What makes us give the lock up, if nothing did already.
    fn choose_next(&mut self, now: BootInstant) {
        if let Some(code) = self.ending {
            self.end_unless_ending(Ending::Code(code));
        }
        let is_held = self.status.is_held(now);
        let wants_to_go = self.status.state == LockState::Lost
            || self.wants_step_down
            || self.gone_by.is_some()
            || (is_held && self.status.yield_requested)
            || (is_held && self.app == App::Absent && !self.holds_over_the_end(now));
        if wants_to_go {
            self.next.get_or_insert(Next::QueueAgain);
        }
    }

    /// Something was asked and is not answered. Whoever wants to end cannot wait for ever.
    fn decide_waiting(&mut self, asked: Ask, now: BootInstant, acts: &mut Vec<Act>) {
        let Some(Next::End(ending)) = self.next else {
            if asked == Ask::Contend && self.gone_by.is_some() {
                self.ask_for_release(now, acts);
            }
            return;
        };
        if asked == Ask::Contend {
            return self.ask_for_release(now, acts);
        }
        let by = *self
            .release_by
            .get_or_insert(now + patience_for_release(&self.policy));
        if now < by {
            return;
        }
        if self.ends_the_container() {
            self.abandon(acts);
            self.end_the_container(acts);
        } else {
            self.end(ending, acts);
        }
    }

    /// Whether what comes to an end is the application's container, and not the keeper.
    fn ends_the_container(&self) -> bool {
        self.policy.kind == Kind::Wrap
            && self.ending.is_none()
            && self.next != Some(Next::End(Ending::Refused))
    }

    fn holds_over_the_end(&self, now: BootInstant) -> bool {
        let is_wanted_elsewhere =
            self.wants_step_down || self.status.yield_requested || self.gone_by.is_some();
        self.policy.on_exit == OnExit::Hold && self.status.is_held(now) && !is_wanted_elsewhere
    }

    /// Only the container ends. Its successor says hello.
    fn end_the_container(&mut self, acts: &mut Vec<Act>) {
        if let Some(Next::End(Ending::Code(code))) = self.next.take()
            && self.app != App::Absent
        {
            acts.push(Act::Tell(crate::guard::protocol::ToGuard::Finish { code }));
            self.app = App::Absent;
        }
    }

    /// Not in the queue: go into it, or end.
    fn decide_out(&mut self, acts: &mut Vec<Act>) {
        match self.next {
            Some(Next::End(_)) if self.ends_the_container() => self.end_the_container(acts),
            Some(Next::End(ending)) => self.end(ending, acts),
            Some(Next::QueueAgain) | None => {
                self.next = None;
                if self.app != App::Absent && self.contend_at.is_none() && self.gone_by.is_none() {
                    self.asked = Some(Ask::Contend);
                    acts.push(Act::Ask(Ask::Contend));
                }
            }
        }
    }

    fn ask_for_release(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        if let Some(Next::End(_)) = self.next {
            self.release_by = Some(now + patience_for_release(&self.policy));
        }
        self.asked = Some(Ask::Release);
        acts.push(Act::Ask(Ask::Release));
    }

    pub(super) fn abandon(&mut self, acts: &mut Vec<Act>) {
        self.asked = None;
        self.release_by = None;
        self.is_in_queue = false;
        self.wants_step_down = false;
        self.status = LockStatus::new();
        acts.push(Act::Abandon);
    }

    fn end(&mut self, ending: Ending, acts: &mut Vec<Act>) {
        self.remove_lease(acts);
        self.has_ended = true;
        acts.push(Act::End(ending));
    }
}
