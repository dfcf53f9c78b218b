//! What to do with the place in the queue while nothing runs: get one, give it up, end.

use lockkeeper_lock::{BootInstant, LockState, LossReason};

use super::act::{Act, Ask, Ending, Next};
use super::application::App;
use super::{Decider, patience_for_release};
use crate::args::OnExit;
use crate::keeper::policy::Kind;
use crate::link::protocol::ToGuard;

impl Decider {
    /// It is not known whether something runs, so the lock is not released. It is kept while the guard's process is
    /// known to live: the guard connects again, or its end is reported.
    pub(super) fn decide_out_of_sight(
        &mut self,
        deadline: Option<BootInstant>,
        is_watched: bool,
        now: BootInstant,
        acts: &mut Vec<Act>,
    ) {
        self.note_a_refusal();
        // What is known to have outlived its deadline keeps the lock through a refusal, too.
        let is_kept = is_watched && self.application.has_survivors(now);
        let is_refused = !is_kept && self.next == Some(Next::End(Ending::Refused));
        if let Some(code) = self.wishes.ending() {
            self.end(Ending::Code(code), acts);
        } else if is_refused {
            self.end(Ending::Refused, acts);
        } else if is_watched {
            // Nothing to do before the guard's report, or its end.
        } else if self.queue.state() == LockState::Lost {
            self.abandon(acts);
        } else if self.policy.on_exit == OnExit::Release
            && self.queue.status().is_held(now)
            && deadline.is_some_and(|deadline| deadline <= now)
        {
            // The application has ended by now, with its container or by the guard. The other contenders need not
            // wait for a container that may never come back, but only for the end of the session.
            self.abandon(acts);
        }
    }

    pub(super) fn decide_queue(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        self.note_a_refusal();
        self.choose_next(now);
        if let Some(asked) = self.queue.asked() {
            return self.decide_waiting(asked, now, acts);
        }
        let is_end = matches!(self.next, Some(Next::End(_)));
        // The keeper and its lock outlive the end of the application's container.
        if is_end && self.ends_the_container() && self.holds_over_the_end(now) {
            return self.end_the_container(acts);
        }
        match self.queue.state() {
            LockState::Released => self.decide_out(acts),
            _ if self.next.is_some() => self.ask_for_release(now, acts),
            _ => {}
        }
    }

    /// We are out of the queue without having asked for it: a request in the background was refused for good.
    fn note_a_refusal(&mut self) {
        if self.queue.is_thrown_out() || self.queue.status().loss == Some(LossReason::Refused) {
            self.end_unless_ending(Ending::Refused);
        }
    }

    /// Chooses why the lock is given up, unless that is decided already.
    fn choose_next(&mut self, now: BootInstant) {
        if let Some(code) = self.wishes.ending() {
            // A code that is decided already is that of the application's container, which ends apart from us.
            if self.policy.kind == Kind::Wrap && matches!(self.next, Some(Next::End(Ending::Code(_)))) {
                self.next = None;
            }
            self.end_unless_ending(Ending::Code(code));
        }
        let is_held = self.queue.status().is_held(now);
        let wants_to_go = self.queue.state() == LockState::Lost
            || self.wishes.has_step_down()
            || self.wishes.gone_by().is_some()
            || (is_held && self.queue.status().yield_requested)
            || (is_held && self.application.state() == App::Absent && !self.holds_over_the_end(now));
        if wants_to_go {
            self.next.get_or_insert(Next::QueueAgain);
        }
    }

    /// A request is not answered yet. A keeper that has to end cannot wait for ever.
    fn decide_waiting(&mut self, asked: Ask, now: BootInstant, acts: &mut Vec<Act>) {
        let Some(Next::End(ending)) = self.next else {
            if asked == Ask::Contend && self.wishes.gone_by().is_some() {
                self.ask_for_release(now, acts);
            }
            return;
        };
        if asked == Ask::Contend {
            return self.ask_for_release(now, acts);
        }
        if now < self.queue.leave_by(now + patience_for_release(&self.policy)) {
            return;
        }
        if self.ends_the_container() {
            self.abandon(acts);
            self.end_the_container(acts);
        } else {
            self.end(ending, acts);
        }
    }

    /// Whether the application's container ends, and not the keeper.
    fn ends_the_container(&self) -> bool {
        self.policy.kind == Kind::Wrap
            && self.wishes.ending().is_none()
            && self.next != Some(Next::End(Ending::Refused))
    }

    fn holds_over_the_end(&self, now: BootInstant) -> bool {
        let is_wanted_elsewhere = self.wishes.has_step_down()
            || self.queue.status().yield_requested
            || self.wishes.gone_by().is_some();
        self.policy.on_exit == OnExit::Hold && self.queue.status().is_held(now) && !is_wanted_elsewhere
    }

    /// Only the container ends. The guard of its successor will connect.
    fn end_the_container(&mut self, acts: &mut Vec<Act>) {
        if let Some(Next::End(Ending::Code(code))) = self.next.take()
            && self.application.state() != App::Absent
        {
            acts.push(Act::Tell(ToGuard::Finish { code }));
            self.application.becomes(App::Absent);
        }
    }

    /// Not in the queue: enter it, or end.
    fn decide_out(&mut self, acts: &mut Vec<Act>) {
        match self.next {
            Some(Next::End(_)) if self.ends_the_container() => self.end_the_container(acts),
            Some(Next::End(ending)) => self.end(ending, acts),
            Some(Next::QueueAgain) | None => {
                self.next = None;
                if self.application.state() != App::Absent
                    && !self.queue.has_to_pause()
                    && self.wishes.gone_by().is_none()
                {
                    self.queue.enter();
                    acts.push(Act::Ask(Ask::Contend));
                }
            }
        }
    }

    fn ask_for_release(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        let is_way_out = matches!(self.next, Some(Next::End(_)));
        self.queue
            .leave(is_way_out.then(|| now + patience_for_release(&self.policy)));
        acts.push(Act::Ask(Ask::Release));
    }

    pub(super) fn abandon(&mut self, acts: &mut Vec<Act>) {
        self.queue.abandon();
        self.inheritance.given_up();
        self.wishes.drop_step_down();
        acts.push(Act::Abandon);
    }

    pub(super) fn end(&mut self, ending: Ending, acts: &mut Vec<Act>) {
        self.remove_lease(acts);
        self.has_ended = true;
        acts.push(Act::End(ending));
    }
}
