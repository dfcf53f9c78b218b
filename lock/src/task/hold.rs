//! From our turn to the loss or the release: renews, holds, and notices a deletion by hand.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Task;
use super::answer::Answer;
use super::pending::Write;
use super::place::Place;
use super::requests::watch::{NOT_THERE, Watched, watch_control};
use super::tenure::Tenure;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{
    Children, Connection, Ensemble, EnsembleError, EnsembleResult, MultiError, NodeEvent, Op,
};
use crate::loss::LossReason;
use crate::record::Control;

/// Writes of our data.
const OF_DATA: [Write; 3] = [Write::Mark, Write::Renewal, Write::TakeOver];

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// The holder renews. So does the heir: its lease has to be valid when its turn comes. Every contender renews once
    /// over a new connection: that is a proof by itself. If the lease had lapsed, the proof takes one more renewal;
    /// contenders further back send it when they need a lease.
    pub(super) fn renewal_due(&self) -> Option<BootInstant> {
        let entry = self.place.entry().filter(|_| self.link.is_up())?;
        let is_lost = self.wishes.lost().is_some();
        let is_given_up = self.wishes.is_releasing() || (is_lost && !self.is_retained());
        // A takeover writes our data too. Until we know whether it was carried out, they may be all that tells.
        if is_given_up || self.pending.has_any(&[Write::Renewal, Write::TakeOver]) {
            return None;
        }
        if self.lease.is_attach_unproven() {
            return Some(BootInstant::from_nanos(0));
        }
        let is_next = entry.line.is_our_turn() || entry.line.is_heir();
        let renews = is_next || is_lost || entry.renewals.states_lease();
        if renews && !is_lost && !self.is_safe_from_takeover(self.clock.now() + self.least_lease(true)) {
            return Some(BootInstant::from_nanos(0));
        }
        let regular = renews.then(|| entry.renewals.last() + self.interval())?;
        Some(self.lease.proof_due().map_or(regular, |due| due.min(regular)))
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
        if self.is_retained() && self.obstacles.refusal().is_none() {
            self.tell_survivors(connection);
        }
    }

    pub(super) fn drive_hold(&mut self, connection: &Arc<E::Connection>) {
        let now = self.clock.now();
        if self.renewal_due().is_some_and(|due| due <= now) {
            self.renew(connection);
        }
        let is_heir = self.place.is_heir();
        let Place::In(entry) = &mut self.place else { return };
        if !entry.line.is_our_turn() && !is_heir {
            return;
        }
        let was_renewing = entry.renewals.begin();
        let is_held = entry.tenure.is_held();
        if is_heir {
            self.watch_own(connection);
        }
        let is_too_short = !self.lease.is_valid(now + self.least_lease(was_renewing));
        if !is_held && is_too_short && self.lease.proof_due().is_none() {
            return self.prove_by_attaching();
        }
        self.read_control(connection);
        if self.options.ask_for_predecessor {
            self.keep_the_record(connection, now);
        }
        // What else is to be done concerns those behind us: the owner hears first that it has the lock (`Task::run`).
        if self.hold_if_it_is_our_turn(now) {
            return;
        }
        let Place::In(entry) = &mut self.place else { return };
        if !entry.tenure.is_held() {
            return;
        }
        if entry.statement.mark() {
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
        self.pending
            .ask(marking, move |result| Answer::Marked { sent, result });
    }

    /// Writes into our data what has outlived SIGKILL, if that has changed. A reader of the queue then sees why the lock is
    /// kept.
    fn tell_survivors(&mut self, connection: &Arc<E::Connection>) {
        let survivors = self.word().survivors;
        let Some(entry) = self.place.entry() else { return };
        if !entry.statement.states(survivors) && !self.pending.has_any(&OF_DATA) {
            self.mark(connection);
        }
    }

    /// A write of our data was acknowledged. If it was the last one under way, they are as we know them.
    fn data_are_known(&mut self) {
        if let Place::In(entry) = &mut self.place
            && !self.pending.has_any(&OF_DATA)
        {
            entry.statement.acknowledged();
        }
    }

    /// Watches our own node. The heir does so while it waits: a server reports deletions in their order, so it reports
    /// the deletion of our own node before that of a holder that left later. A contender that hears only of the second
    /// is still in the queue.
    fn watch_own(&mut self, connection: &Arc<E::Connection>) {
        let Place::In(entry) = &mut self.place else { return };
        if entry.own.begin_watch() {
            let watched = connection.watch_children(entry.own.path());
            self.pending.ask(watched, Answer::Own);
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

    /// Holding means that no contender is before us *and* that our leases are valid on our own clock. Returns whether we
    /// hold from now on.
    fn hold_if_it_is_our_turn(&mut self, now: BootInstant) -> bool {
        let is_taking_over = self.pending.has_any(&[Write::TakeOver]);
        let is_valid = self.is_valid(now + self.least_lease(true));
        let Place::In(entry) = &mut self.place else {
            return false;
        };
        if entry.tenure.is_held() || !entry.line.is_our_turn() || !is_valid || is_taking_over {
            return false;
        }
        let asks = self.options.ask_for_predecessor;
        if asks && !entry.past.is_recorded() {
            return false;
        }
        entry.tenure = Tenure::Held {
            is_predecessor_unclean: asks && entry.past.has_debts(),
        };
        true
    }

    fn renew(&mut self, connection: &Arc<E::Connection>) {
        let is_lost = self.wishes.lost().is_some();
        let Some(entry) = self.place.entry() else { return };
        let path = entry.own.path().to_owned();
        // A waiter further back is left to its session: it renews only once over each connection.
        let is_waiter = !entry.line.is_our_turn() && !is_lost && !entry.line.is_heir();
        let states_lease = entry.renewals.lease().is_some() && (entry.renewals.states_lease() || !is_waiter);
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
        if let Place::In(entry) = &mut self.place {
            entry.renewals.sent(sent);
        }
        let renewing = connection.multi(vec![op]);
        self.pending.ask(renewing, move |result| Answer::Renewed {
            sent,
            states_lease,
            result,
        });
    }

    pub(super) fn renewed(&mut self, sent: BootInstant, states_lease: bool, result: Result<(), MultiError>) {
        self.pending.written(Write::Renewal);
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
            Err(MultiError { error, .. }) => self.contender_refused("renew", error),
        }
    }

    pub(super) fn marked(&mut self, sent: BootInstant, result: EnsembleResult<()>) {
        self.pending.written(Write::Mark);
        match result {
            Ok(()) => {
                self.data_are_known();
                self.acknowledge_own(sent);
            }
            Err(error) => self.contender_refused("mark as held", error),
        }
    }

    pub(super) fn own(&mut self, result: EnsembleResult<(Children, BoxFuture<'static, NodeEvent>)>) {
        let (Some(entry), Some(connection)) = (self.place.entry_mut(), self.link.connection()) else {
            return;
        };
        match result {
            Ok((children, mut event)) => {
                let (session, token) = (connection.session().id, entry.own.token());
                if children.owner != session || children.parent.czxid != token {
                    return self.entry_is_gone(LossReason::ContenderDeleted);
                }
                // The event may be here already, before the next answer in the line.
                if let Some(event) = tokio::task::unconstrained(&mut event).now_or_never() {
                    return self.own_event(event);
                }
                entry.own.watched();
                self.pending.ask(event, Answer::OwnEvent);
            }
            Err(error) => self.contender_refused("watch", error),
        }
    }

    pub(super) fn own_event(&mut self, event: NodeEvent) {
        let Place::In(entry) = &mut self.place else { return };
        match event {
            NodeEvent::Changed => entry.own.unwatched(),
            NodeEvent::Deleted => self.entry_is_gone(LossReason::ContenderDeleted),
            NodeEvent::Disconnected => self.connection_lost(),
        }
    }

    fn read_control(&mut self, connection: &Arc<E::Connection>) {
        let Some(reading) = self.control.begin_reading() else {
            return;
        };
        let watched = watch_control(
            Arc::clone(connection),
            self.options.control.clone(),
            self.options.provisioned,
        );
        self.pending
            .ask(watched, move |result| Answer::Control { reading, result });
    }

    pub(super) fn control(&mut self, reading: u64, result: Watched) {
        if !self.control.is_newest(reading) {
            return;
        }
        match result {
            Ok((node, event)) => {
                let version = (node.czxid != NOT_THERE).then_some(node.version);
                self.control.is_read(Control::parse(&node.data), version);
                self.pending.ask(event, Answer::ControlEvent);
                self.yield_as_a_waiter();
            }
            // The lock works without it. But no client can ask us to yield, and no release counts as clean.
            Err(EnsembleError::NoAuth) => {
                tracing::warn!(
                    path = self.options.control,
                    "No right to read the control node; continuing without it"
                );
                self.control.is_read(Control::default(), None);
            }
            Err(error) => {
                let action = format!("cannot read the control node {}", self.options.control);
                self.refused(action, error);
            }
        }
    }

    pub(super) fn control_event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Changed | NodeEvent::Deleted => self.control.outdated(),
            NodeEvent::Disconnected => self.connection_lost(),
        }
    }

    /// A waiter has nothing to stop, so it steps down at once. The owner of a held lock steps down when its application
    /// is gone.
    fn yield_as_a_waiter(&mut self) {
        // A contender that is leaving does not queue again because of this, and only the owner releases a lost lock.
        if self.wishes.is_over() {
            return;
        }
        let Some(entry) = self.place.entry() else { return };
        let is_waiter = matches!(entry.tenure, Tenure::NotHeld);
        if is_waiter && self.control.asks(entry.own.name()) {
            tracing::info!(
                lock.path = self.options.root,
                "Asked to step down while waiting; queueing again"
            );
            self.release(true, None);
        }
    }

    /// Reports the lock lost at the deadline.
    pub(super) fn watch_the_lease(&mut self) {
        if self.place.is_held() && !self.wishes.is_releasing() && !self.is_valid(self.clock.now()) {
            self.lose(LossReason::DeadlineReached);
        }
    }
}
