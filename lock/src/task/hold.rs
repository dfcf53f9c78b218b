//! From our turn to the loss or the release: renews, holds, and notices a deletion by hand.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::answer::Answer;
use super::place::Place;
use super::requests::watch::{NOT_THERE, Watched, watch_control};
use super::state::{Link, Task, Write};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{
    Children, Connection, Ensemble, EnsembleError, EnsembleResult, MultiError, NodeEvent, Op,
};
use crate::error::LockError;
use crate::loss::LossReason;
use crate::record::{Control, now as time_of_day};

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// The holder renews. So does the heir: its lease has to be valid when its turn comes. Every contender renews once
    /// over a new connection: that is a proof by itself. If the lease had lapsed, the proof takes one more renewal;
    /// contenders further back send it when they need a lease.
    pub(super) fn renewal_due(&self) -> Option<BootInstant> {
        let (Link::Up(_), Place::In(entry)) = (&self.link, &self.place) else {
            return None;
        };
        let is_given_up = self.lost.is_some() && !self.is_retained();
        // A takeover writes our data too. Until we know whether it was carried out, they may be all that tells.
        let is_writing = [Write::Renewal, Write::TakeOver]
            .iter()
            .any(|write| self.writes[*write as usize].is_some());
        if is_given_up || self.releasing.is_some() || is_writing {
            return None;
        }
        if self.lease.is_attach_unproven() {
            return Some(BootInstant::from_nanos(0));
        }
        let renews = entry.is_our_turn || self.lost.is_some() || self.is_heir() || entry.states_lease;
        if renews
            && self.lost.is_none()
            && !self.is_safe_from_takeover(self.clock.now() + self.least_lease(true))
        {
            return Some(BootInstant::from_nanos(0));
        }
        let regular = renews.then(|| self.last_renewal + self.interval())?;
        Some(self.lease.proof_due().map_or(regular, |due| due.min(regular)))
    }

    pub(super) fn is_heir(&self) -> bool {
        match &self.place {
            Place::In(entry) => entry.ahead.as_ref().is_some_and(|ahead| ahead.place().is_heir),
            _ => false,
        }
    }

    /// Whether a contender that has lost the lock stays in the queue.
    pub(super) fn is_retained(&self) -> bool {
        self.word().is_retained
    }

    /// The lock is lost; the contender may stay to keep the lock from those behind us.
    pub(super) fn drive_lost(&mut self, connection: &Arc<E::Connection>) {
        if self.renewal_due().is_some_and(|due| due <= self.clock.now()) {
            self.renew(connection);
        }
        // What was refused is not tried at once again.
        if self.is_retained() && self.refusal.is_none() {
            self.tell_survivors(connection);
        }
    }

    pub(super) fn drive_hold(&mut self, connection: &Arc<E::Connection>) {
        let now = self.clock.now();
        if self.renewal_due().is_some_and(|due| due <= now) {
            self.renew(connection);
        }
        let is_heir = self.is_heir();
        let Place::In(entry) = &mut self.place else { return };
        if !entry.is_our_turn && !is_heir {
            return;
        }
        let was_renewing = std::mem::replace(&mut entry.is_renewing, true);
        let is_held = entry.is_held;
        if is_heir {
            self.watch_own(connection);
        }
        let is_too_short = !self.lease.is_valid(now + self.least_lease(was_renewing));
        if !is_held && is_too_short && self.lease.proof_due().is_none() {
            return self.prove_by_attaching();
        }
        if !std::mem::replace(&mut self.is_control_watched, true) {
            let watched = watch_control(
                Arc::clone(connection),
                self.options.control.clone(),
                self.options.provisioned,
            );
            self.control_reading += 1;
            let reading = self.control_reading;
            self.ask(async move {
                Answer::Control {
                    reading,
                    result: watched.await,
                }
            });
        }
        if self.options.ask_for_predecessor {
            self.keep_the_record(connection, now);
        }
        self.hold_if_it_is_our_turn(now);
        let Place::In(entry) = &mut self.place else { return };
        if !entry.is_held {
            return;
        }
        if !std::mem::replace(&mut entry.is_marked, true) {
            entry.since = time_of_day();
            self.mark(connection);
        }
        self.tell_survivors(connection);
        self.watch_own(connection);
        self.keep_the_record(connection, now);
    }

    /// Writes our data anew.
    fn mark(&mut self, connection: &Arc<E::Connection>) {
        let Some((path, data)) = self.say_anew(None) else {
            return;
        };
        let sent = self.writing(Write::Mark);
        let marking = connection.set_data(&path, data, None);
        self.ask(async move {
            Answer::Marked {
                sent,
                result: marking.await,
            }
        });
    }

    /// Whether a write of our data is under way.
    fn is_writing_data(&self) -> bool {
        [Write::Mark, Write::Renewal, Write::TakeOver]
            .iter()
            .any(|write| self.writes[*write as usize].is_some())
    }

    /// Writes into our data what has outlived SIGKILL, if that has changed. A reader of the queue then sees why the lock is
    /// kept.
    fn tell_survivors(&mut self, connection: &Arc<E::Connection>) {
        let Place::In(entry) = &self.place else { return };
        let is_told = entry.said_survivors == self.word().survivors && !entry.is_said_unsure;
        if !is_told && !self.is_writing_data() {
            self.mark(connection);
        }
    }

    /// A write of our data was acknowledged. If it was the last one under way, they are as we know them.
    fn data_are_known(&mut self) {
        let is_sure = !self.is_writing_data();
        if let Place::In(entry) = &mut self.place {
            entry.is_said_unsure &= !is_sure;
        }
    }

    /// Watches our own node. The heir does so while it waits: a server reports deletions in their order, so it reports
    /// the deletion of our own node before that of a holder that left later. A contender that hears only of the second
    /// is still in the queue.
    fn watch_own(&mut self, connection: &Arc<E::Connection>) {
        let Place::In(entry) = &mut self.place else { return };
        if !std::mem::replace(&mut entry.is_own_watched, true) {
            let watched = connection.watch_children(&entry.path);
            self.ask(async move { Answer::Own(watched.await) });
        }
    }

    /// How much time has to be left until the deadline to hold. A contender that would have to stop at once does not
    /// hold. A contender that begins to renew only now needs its lease until the first renewal is proven.
    pub(super) fn least_lease(&self, was_renewing: bool) -> Duration {
        let timing = &self.options.timing;
        if was_renewing {
            timing.stop_grace
        } else {
            timing.stop_grace + timing.proven_age()
        }
    }

    /// Holding means that no contender is before us *and* that our leases are valid on our own clock.
    fn hold_if_it_is_our_turn(&mut self, now: BootInstant) {
        let is_taking_over = self.writes[Write::TakeOver as usize].is_some();
        let is_valid = self.is_valid(now + self.least_lease(true));
        let Place::In(entry) = &mut self.place else { return };
        if entry.is_held || !entry.is_our_turn || !is_valid || is_taking_over {
            return;
        }
        if self.options.ask_for_predecessor {
            if !entry.past.record.is_done() {
                return;
            }
            entry.predecessor_unclean = !entry.past.debts.is_empty();
        }
        entry.is_held = true;
        entry.is_left = false;
    }

    fn renew(&mut self, connection: &Arc<E::Connection>) {
        let Place::In(entry) = &self.place else { return };
        let path = entry.path.clone();
        // A waiter further back is left to its session: it renews only once over each connection.
        let is_waiter = !entry.is_our_turn && self.lost.is_none() && !self.is_heir();
        let states_lease = entry.lease.is_some() && (entry.states_lease || !is_waiter);
        let said = states_lease.then(|| self.say_anew(None)).flatten();
        let op = match said {
            Some((path, data)) => Op::SetData {
                path,
                data,
                version: None,
            },
            None => Op::Check { path },
        };
        let sent = self.writing(Write::Renewal);
        self.last_renewal = sent;
        let renewing = connection.multi(vec![op]);
        self.ask(async move {
            Answer::Renewed {
                sent,
                states_lease,
                result: renewing.await,
            }
        });
    }

    pub(super) fn renewed(&mut self, sent: BootInstant, states_lease: bool, result: Result<(), MultiError>) {
        self.written(Write::Renewal);
        match result {
            Ok(()) => {
                let is_acknowledged = match states_lease {
                    true => {
                        self.data_are_known();
                        self.acknowledge_own(sent)
                    }
                    false => self.acknowledge(sent),
                };
                if !is_acknowledged {
                    self.drop_link();
                } else if let Some(observer) = &self.options.observer {
                    observer.renewed(self.clock.now() - sent);
                }
            }
            Err(MultiError {
                error: EnsembleError::NoNode,
                ..
            }) => {
                self.entry_is_gone(LossReason::ContenderDeleted);
            }
            Err(MultiError { error, .. }) => self.contender_refused("renew", error),
        }
    }

    pub(super) fn marked(&mut self, sent: BootInstant, result: EnsembleResult<()>) {
        self.written(Write::Mark);
        match result {
            Ok(()) => {
                self.data_are_known();
                self.acknowledge_own(sent);
            }
            Err(EnsembleError::NoNode) => self.entry_is_gone(LossReason::ContenderDeleted),
            Err(error) => self.contender_refused("mark as held", error),
        }
    }

    pub(super) fn own(&mut self, result: EnsembleResult<(Children, BoxFuture<'static, NodeEvent>)>) {
        let (Place::In(entry), Link::Up(connection)) = (&mut self.place, &self.link) else {
            return;
        };
        match result {
            Ok((children, mut event)) => {
                if children.owner != connection.session().id || children.parent.czxid != entry.token {
                    return self.entry_is_gone(LossReason::ContenderDeleted);
                }
                // The event may be here already, before the next answer in the line.
                if let Some(event) = tokio::task::unconstrained(&mut event).now_or_never() {
                    return self.own_event(event);
                }
                entry.is_own_seen = true;
                self.ask(async move { Answer::OwnEvent(event.await) });
            }
            Err(EnsembleError::NoNode) => self.entry_is_gone(LossReason::ContenderDeleted),
            Err(error) => self.contender_refused("watch", error),
        }
    }

    pub(super) fn own_event(&mut self, event: NodeEvent) {
        let Place::In(entry) = &mut self.place else { return };
        match event {
            NodeEvent::Changed => {
                entry.is_own_watched = false;
                entry.is_own_seen = false;
            }
            NodeEvent::Deleted => self.entry_is_gone(LossReason::ContenderDeleted),
            NodeEvent::Disconnected => self.connection_lost(),
        }
    }

    pub(super) fn contender_refused(&mut self, verb: &str, error: EnsembleError) {
        if !self.is_about_link(&error) {
            let action = match &self.place {
                Place::In(entry) => format!("cannot {verb} {}", entry.path),
                _ => format!("cannot {verb}"),
            };
            let error = LockError::Refused { action, error };
            if !self.is_kept_through(&error) {
                self.fail(error);
            }
        }
    }

    pub(super) fn control(&mut self, reading: u64, result: Watched) {
        if reading != self.control_reading {
            return;
        }
        self.control_read = reading;
        match result {
            Ok((node, event)) => {
                let version = (node.czxid != NOT_THERE).then_some(node.version);
                self.control = Some((Control::parse(&node.data), version));
                self.ask(async move { Answer::ControlEvent(event.await) });
                self.yield_as_a_waiter();
            }
            // The lock works without it. But no client can ask us to yield, and no release counts as clean.
            Err(EnsembleError::NoAuth) => {
                tracing::warn!(
                    path = self.options.control,
                    "No right to read the control node; continuing without it"
                );
                self.control = Some((Control::default(), None));
            }
            Err(error) => {
                if !self.is_about_link(&error) {
                    let action = format!("cannot read the control node {}", self.options.control);
                    self.fail(LockError::Refused { action, error });
                }
            }
        }
    }

    pub(super) fn control_event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Changed | NodeEvent::Deleted => self.is_control_watched = false,
            NodeEvent::Disconnected => self.connection_lost(),
        }
    }

    /// A waiter has nothing to stop, so it steps down at once. The owner of a held lock steps down when its application
    /// is gone.
    fn yield_as_a_waiter(&mut self) {
        // A contender that is leaving does not queue again because of this, and only the owner releases a lost lock.
        if self.releasing.is_some() || self.lost.is_some() {
            return;
        }
        let (Place::In(entry), Some((control, _))) = (&self.place, &self.control) else {
            return;
        };
        if !entry.is_held && !entry.is_left && control.asks(&entry.name) {
            tracing::info!(
                lock.path = self.options.root,
                "Asked to step down while waiting; queueing again"
            );
            self.release(true, None);
        }
    }

    /// Reports the lock lost at the deadline.
    pub(super) fn watch_the_lease(&mut self) {
        if self.is_held() && self.releasing.is_none() && !self.is_valid(self.clock.now()) {
            self.lose(LossReason::DeadlineReached);
        }
    }

    pub(super) fn lose(&mut self, reason: LossReason) {
        self.lost = Some(reason);
        self.is_contending = false;
        if let Place::In(entry) = &mut self.place {
            entry.is_held = false;
        }
        for reply in self.contend_replies.drain(..) {
            let _ = reply.send(Err(LockError::Lost(reason)));
        }
    }
}
