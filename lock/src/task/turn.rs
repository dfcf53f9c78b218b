//! What a contender does in the queue, until it is our turn.

use std::sync::Arc;

use super::Task;
use super::answer::Answer;
use super::place::Place;
use super::requests::strangers::{self, Listed};
use super::requests::watch::{Watched, until_gone_or_changed, watch};
use crate::clock::Clock;
use crate::ensemble::{Ensemble, EnsembleError, EnsembleResult, Incarnation, NodeEvent};
use crate::error::LockError;
use crate::loss::LossReason;
use crate::queue::{Ahead, out_of_numbers, sorted};
use crate::record::ContenderData;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Lists, watches and renews, as our place in the queue requires.
    pub(super) fn drive_queue(&mut self, connection: &Arc<E::Connection>) {
        self.look_for_the_takeover(connection);
        self.drive_hold(connection);
        // It may have given up the connection for a new one to the same server. Requests over the old connection would
        // fail now, and end the new one too.
        if !self.link.is_up() {
            return;
        }
        let Place::In(entry) = &mut self.place else { return };
        if entry.line.begin_listing() {
            let listing = strangers::list(Arc::clone(connection), self.options.root.clone());
            return self.pending.ask(listing, Answer::Listed);
        }
        for name in entry.line.watch_more() {
            self.watch_predecessor(connection, name);
        }
        self.drive_takeover(connection);
    }

    fn watch_predecessor(&mut self, connection: &Arc<E::Connection>, name: String) {
        let watched = watch(Arc::clone(connection), format!("{}/{name}", self.options.root));
        self.pending
            .ask(watched, move |result| Answer::Predecessor { name, result });
    }

    pub(super) fn listed(&mut self, result: EnsembleResult<Listed>) {
        let Place::In(entry) = &mut self.place else { return };
        entry.line.list_again();
        let listed = match result {
            Ok(listed) => listed,
            Err(EnsembleError::NoNode) => return self.entry_is_gone(LossReason::ContenderDeleted),
            Err(error) => return self.refused(format!("cannot list {}", self.options.root), error),
        };
        let contenders = sorted(&listed.children.names);
        if let Some(contender) = out_of_numbers(&contenders) {
            return self.fail(LockError::OutOfNumbers {
                root: self.options.root.clone(),
                contender: contender.name.clone(),
            });
        }
        if !self.is_agreed(listed.children.parent) {
            return;
        }
        let Place::In(entry) = &mut self.place else { return };
        let mode = self.options.mode;
        let Some(ahead) = Ahead::from_children(&listed.children.names, entry.own.name(), mode) else {
            return self.entry_is_gone(LossReason::ContenderDeleted);
        };
        entry.line.listed(ahead.with_strangers(listed.strangers));
        if self.options.writes_holders() {
            entry.line.suspect_all();
        }
        self.tell_strangers();
        self.obstacles.ignore(listed.bystanders, &self.options.root);
        self.look_whether_it_is_our_turn();
    }

    pub(super) fn predecessor(&mut self, name: String, result: Watched) {
        let Place::In(entry) = &mut self.place else { return };
        match result {
            Ok((node, event)) => {
                let said = ContenderData::parse(&node.data);
                let is_held = said.is_held();
                let was_unreadable = entry.line.seen(&name, &node, said, self.clock.now());
                if is_held {
                    entry.line.seen_held(&name);
                }
                self.pending
                    .ask(event, move |event| Answer::PredecessorEvent { name, event });
                if was_unreadable {
                    self.tell_strangers();
                }
            }
            Err(EnsembleError::NoNode) => self.predecessor_event(name, NodeEvent::Deleted),
            Err(EnsembleError::NoAuth) => self.await_unreadable(name),
            Err(error) => self.cannot_watch(&name, error),
        }
    }

    /// Waits for the end of a child that we may not read. Its place counts all the same: whoever has made it may have
    /// kept it from us alone.
    fn await_unreadable(&mut self, name: String) {
        let (Some(entry), Some(connection)) = (self.place.entry_mut(), self.link.connection()) else {
            return;
        };
        entry.line.unreadable(&name);
        let gone = until_gone_or_changed(Arc::clone(connection), self.options.root.clone(), name.clone());
        self.pending
            .ask(gone, move |result| Answer::UnreadableEvent { name, result });
        self.tell_strangers();
    }

    pub(super) fn unreadable_event(&mut self, name: String, result: EnsembleResult<NodeEvent>) {
        match result {
            Ok(event) => self.predecessor_event(name, event),
            Err(error) => self.cannot_watch(&name, error),
        }
    }

    fn cannot_watch(&mut self, name: &str, error: EnsembleError) {
        self.refused(format!("cannot watch {}/{name}", self.options.root), error);
    }

    pub(super) fn predecessor_event(&mut self, name: String, event: NodeEvent) {
        let Place::In(entry) = &mut self.place else { return };
        match event {
            NodeEvent::Changed => {
                if entry.line.changed(&name)
                    && let Some(connection) = self.link.connection().cloned()
                {
                    self.watch_predecessor(&connection, name);
                }
            }
            NodeEvent::Deleted => {
                entry.line.gone(&name, entry.own.is_watched());
                self.look_whether_it_is_our_turn();
            }
            NodeEvent::Disconnected => self.connection_lost(),
        }
    }

    fn look_whether_it_is_our_turn(&mut self) {
        let Place::In(entry) = &mut self.place else { return };
        if entry.line.take_turn() {
            // A contender that need not be waited for any more may not be readable.
            self.obstacles.clear();
        }
    }

    /// Reports the clients beside which the lock is not held.
    fn tell_strangers(&mut self) {
        let Some(entry) = self.place.entry() else { return };
        let refusal = entry.line.refusal(&self.options.root);
        self.obstacles.wait_for(refusal, &self.options.root);
    }

    /// Whether the listed queue is the one whose agreement we checked when we entered. If not, we leave it, without
    /// having held, and enter again.
    fn is_agreed(&mut self, listed: Incarnation) -> bool {
        let Some(entry) = self.place.entry() else {
            return false;
        };
        // What was left to us was admitted when it was created.
        if entry.own.agreed() == Some(listed) || entry.tenure.is_left() {
            return true;
        }
        self.terms.is_contradicted();
        // A contender that is leaving does not queue again because of this.
        if !self.wishes.is_over() {
            tracing::warn!(
                lock.path = self.options.root,
                "The agreement about the lock was changed while we entered the queue; queueing again"
            );
            self.release(true, None);
        }
        false
    }
}
