//! In the queue, until it is our turn.

use std::sync::Arc;

use super::answer::Answer;
use super::place::Place;
use super::requests::strangers::{self, Listed};
use super::requests::watch::{Watched, until_gone_or_changed, watch};
use super::seen::Seen;
use super::state::{Link, Task};
use crate::clock::Clock;
use crate::ensemble::{Ensemble, EnsembleError, EnsembleResult, Incarnation, NodeEvent};
use crate::error::LockError;
use crate::loss::LossReason;
use crate::queue::{Ahead, out_of_numbers, sorted};
use crate::record::ContenderData;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// In the queue: lists, watches and renews as our place requires.
    pub(super) fn drive_queue(&mut self, connection: &Arc<E::Connection>) {
        self.look_for_the_takeover(connection);
        self.drive_hold(connection);
        // It may have given up the connection for a new one to the same server. Requests over the old connection would
        // fail now, and end the new one too.
        if !matches!(self.link, Link::Up(_)) {
            return;
        }
        let Place::In(entry) = &mut self.place else { return };
        if entry.is_our_turn {
            return;
        }
        let Some(ahead) = &entry.ahead else {
            if !std::mem::replace(&mut entry.is_listing, true) {
                let listing = strangers::list(Arc::clone(connection), self.options.root.clone());
                self.ask(async move { Answer::Listed(listing.await) });
            }
            return;
        };
        let new: Vec<String> = ahead
            .place()
            .watch
            .into_iter()
            .filter(|name| !entry.watched.contains_key(name))
            .collect();
        let unseen = new.iter().map(|name| (name.clone(), Seen::default()));
        entry.watched.extend(unseen);
        for name in new {
            self.watch_predecessor(connection, name);
        }
        self.drive_takeover(connection);
    }

    fn watch_predecessor(&mut self, connection: &Arc<E::Connection>, name: String) {
        let watched = watch(Arc::clone(connection), format!("{}/{name}", self.options.root));
        self.ask(async move {
            Answer::Predecessor {
                name,
                result: watched.await,
            }
        });
    }

    pub(super) fn listed(&mut self, result: EnsembleResult<Listed>) {
        let Place::In(entry) = &mut self.place else { return };
        entry.is_listing = false;
        let contenders = result
            .as_ref()
            .map(|listed| sorted(&listed.children.names))
            .unwrap_or_default();
        if let Some(contender) = out_of_numbers(&contenders) {
            return self.fail(LockError::OutOfNumbers {
                root: self.options.root.clone(),
                contender: contender.name.clone(),
            });
        }
        if let Ok(listed) = &result
            && !self.is_agreed(listed.children.parent)
        {
            return;
        }
        let Place::In(entry) = &mut self.place else { return };
        match result {
            Ok(listed) => {
                match Ahead::from_children(&listed.children.names, &entry.name, self.options.mode) {
                    Some(ahead) => {
                        let ahead = ahead.with_strangers(listed.strangers);
                        if self.options.writes_holders() {
                            entry.past.suspects.extend(ahead.names().map(str::to_owned));
                        }
                        entry.ahead = Some(ahead);
                        self.tell_strangers();
                        self.tell_bystanders(listed.bystanders);
                        self.look_whether_it_is_our_turn();
                    }
                    None => self.entry_is_gone(LossReason::ContenderDeleted),
                }
            }
            Err(EnsembleError::NoNode) => self.entry_is_gone(LossReason::ContenderDeleted),
            Err(error) => {
                if !self.is_about_link(&error) {
                    let action = format!("cannot list {}", self.options.root);
                    self.fail(LockError::Refused { action, error });
                }
            }
        }
    }

    pub(super) fn predecessor(&mut self, name: String, result: Watched) {
        let Place::In(entry) = &mut self.place else { return };
        match result {
            Ok((node, event)) => {
                let said = ContenderData::parse(&node.data);
                let is_held = said.is_held();
                let seen = entry.watched.entry(name.clone()).or_default();
                seen.look(&node, said, self.clock.now());
                let was_unreadable = std::mem::take(&mut seen.is_unreadable);
                if is_held {
                    // Once it is our turn, every contender that left was before us.
                    if !entry.is_our_turn
                        && let Some(ahead) = &mut entry.ahead
                    {
                        let is_outdated = ahead.seen_held(&name);
                        // Holders before that one do not concern us: it has waited for them if it had to.
                        entry
                            .past
                            .suspects
                            .retain(|suspect| ahead.names().any(|name| name == suspect));
                        if is_outdated {
                            entry.ahead = None;
                        }
                    }
                }
                self.ask(async move {
                    Answer::PredecessorEvent {
                        name,
                        event: event.await,
                    }
                });
                if was_unreadable {
                    self.tell_strangers();
                }
            }
            Err(EnsembleError::NoNode) => self.predecessor_event(name, NodeEvent::Deleted),
            Err(EnsembleError::NoAuth) => self.await_unreadable(name),
            Err(error) => self.cannot_watch(&name, error),
        }
    }

    /// Who has made this child wants nobody to read it, perhaps us alone: its place counts all the same.
    fn await_unreadable(&mut self, name: String) {
        let (Place::In(entry), Link::Up(connection)) = (&mut self.place, &self.link) else {
            return;
        };
        entry.watched.entry(name.clone()).or_default().is_unreadable = true;
        let gone = until_gone_or_changed(Arc::clone(connection), self.options.root.clone(), name.clone());
        self.ask(async move {
            Answer::UnreadableEvent {
                name,
                result: gone.await,
            }
        });
        self.tell_strangers();
    }

    pub(super) fn unreadable_event(&mut self, name: String, result: EnsembleResult<NodeEvent>) {
        match result {
            Ok(event) => self.predecessor_event(name, event),
            Err(error) => self.cannot_watch(&name, error),
        }
    }

    fn cannot_watch(&mut self, name: &str, error: EnsembleError) {
        if !self.is_about_link(&error) {
            let action = format!("cannot watch {}/{name}", self.options.root);
            self.fail(LockError::Refused { action, error });
        }
    }

    pub(super) fn predecessor_event(&mut self, name: String, event: NodeEvent) {
        let Place::In(entry) = &mut self.place else { return };
        match event {
            NodeEvent::Changed => {
                // Once it is our turn we wait for nobody.
                let Some(seen) = entry.watched.get_mut(&name).filter(|_| !entry.is_our_turn) else {
                    return;
                };
                // It has renewed: the wait begins anew with the answer.
                seen.sighting = None;
                let Link::Up(connection) = &self.link else { return };
                let connection = Arc::clone(connection);
                self.watch_predecessor(&connection, name);
            }
            NodeEvent::Deleted => {
                let seen = entry.watched.remove(&name).unwrap_or_default();
                let Some(ahead) = &mut entry.ahead else { return };
                ahead.remove(&name, seen.was_held);
                let place = ahead.place();
                let is_to_be_listed = place.position > 0 && !place.is_heir;
                // A user may have deleted our own contender by hand before. Then the contender behind us has become the
                // heir, and holds now.
                let is_own_in_doubt = place.position == 0 && !entry.is_own_seen;
                let is_beside_strangers = !ahead.strangers().is_empty() || seen.is_unreadable;
                if is_to_be_listed || is_own_in_doubt || is_beside_strangers {
                    entry.ahead = None;
                } else {
                    self.look_whether_it_is_our_turn();
                }
            }
            NodeEvent::Disconnected => self.connection_lost(),
        }
    }

    fn look_whether_it_is_our_turn(&mut self) {
        let Place::In(entry) = &mut self.place else { return };
        let is_first = entry
            .ahead
            .as_ref()
            .is_some_and(|ahead| ahead.place().position == 0);
        if is_first && !entry.is_our_turn {
            entry.is_our_turn = true;
            entry.watched.clear();
            // A contender that need not be waited for any more may not be readable.
            self.refusal = None;
        }
    }

    /// Whether the listed queue is the one whose agreement we checked when we entered. If not, we leave it, without
    /// having held, and enter again.
    fn is_agreed(&mut self, listed: Incarnation) -> bool {
        let Place::In(entry) = &self.place else {
            return false;
        };
        // What was left to us was admitted when it was created.
        if entry.agreed == Some(listed) || entry.is_left {
            return true;
        }
        self.agreed = None;
        // A contender that is leaving does not queue again because of this.
        if self.releasing.is_some() || self.lost.is_some() {
            return false;
        }
        tracing::warn!(
            lock.path = self.options.root,
            "The agreement about the lock was changed while we entered the queue; queueing again"
        );
        self.release(true, None);
        false
    }
}
