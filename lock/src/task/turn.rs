//! Standing in the queue: from the contender's creation to our turn.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::agree::{self, Entered, NotEntered, Wanted};
use super::strangers::{self, Listed};
use super::{Answer, Entry, Link, Place, Reply, Task, Write, membership, provision};
use crate::agreement::Agreement;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{
    Connection, Created, Ensemble, EnsembleError, EnsembleResult, Incarnation, Node, NodeEvent, Op,
};
use crate::error::LockError;
use crate::participant::{self, Participant};
use crate::queue::{Ahead, Mode, out_of_numbers, sorted};
use crate::record::{ContenderData, contender_data};
use crate::state::LossReason;

/// A node with a boxed watch.
pub(super) type Watched = EnsembleResult<(Node, BoxFuture<'static, NodeEvent>)>;

/// Reads a node and watches it.
pub(super) async fn watch<C: Connection>(connection: Arc<C>, path: String) -> Watched {
    let (node, event) = connection.watch_node(&path).await?;
    // The event keeps no connection alive: when the connection goes, the request is forgotten.
    Ok((node, event.boxed()))
}

/// A contender that was found, and the lock root whose agreement admits it.
pub(super) struct Found {
    created: Created,
    agreed: Option<Incarnation>,
}

/// Finds a contender whose creation was not answered. The quorum write before the listing goes the
/// same way as the creation, behind it: whatever became of that is decided when it is answered.
async fn find<C: Connection>(
    connection: Arc<C>,
    root: String,
    prefix: String,
    mode: Mode,
) -> EnsembleResult<Option<Found>> {
    match connection.multi(vec![Op::Check { path: root.clone() }]).await {
        Ok(()) => {}
        Err(failed) if failed.error == EnsembleError::NoNode => return Ok(None),
        Err(failed) => return Err(failed.error),
    }
    let children = connection.children(&root).await?.names;
    let Some(path) = children
        .iter()
        .map(|name| format!("{root}/{name}"))
        .find(|path| path.starts_with(&prefix))
    else {
        return Ok(None);
    };
    let created = match connection.node(&path).await {
        Ok(node) => Created {
            path,
            czxid: node.czxid,
            owner: node.owner,
        },
        Err(EnsembleError::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    };
    // While it is there the lock root is the one that it was created under.
    let agreed = match connection.node(&root).await {
        Ok(node) => {
            let agreement = Agreement::parse(&node.data).ok().flatten();
            let admits = agreement.is_some_and(|agreement| agreement.admits(mode).is_ok());
            admits.then(|| node.incarnation())
        }
        Err(EnsembleError::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Found { created, agreed }))
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    pub(super) fn contend(&mut self, reply: Reply<()>) {
        if let Some(reason) = self.lost {
            let _ = reply.send(Err(LockError::Lost(reason)));
            return;
        }
        if let Some(releasing) = &mut self.releasing {
            // The contender that is there goes; this wish is about the next one.
            releasing.queue_again = true;
            return self.contend_replies.push(reply);
        }
        self.is_contending = true;
        if !self.is_barred {
            self.refusal = None;
        }
        if matches!(self.place, Place::In(_)) {
            let _ = reply.send(Ok(()));
        } else {
            self.contend_replies.push(reply);
        }
    }

    /// A name of our own: recognised again after a lost answer (Curator's "protection").
    pub(super) fn new_prefix(&self) -> String {
        format!(
            "{}/_c_{}{}",
            self.options.root,
            uuid::Uuid::new_v4(),
            self.options.mode.marker()
        )
    }

    pub(super) fn drive_entering(&mut self, connection: &Arc<E::Connection>) {
        let Place::Entering {
            prefix,
            is_asked,
            is_uncertain,
        } = &mut self.place
        else {
            return;
        };
        if std::mem::replace(is_asked, true) {
            return;
        }
        let (root, prefix, is_uncertain) = (self.options.root.clone(), prefix.clone(), *is_uncertain);
        let connection = Arc::clone(connection);
        let sent = self.writing(Write::Enter);
        if is_uncertain {
            let mode = self.options.mode;
            self.ask(async move { Answer::Found(find(connection, root, prefix, mode).await) });
            return;
        }
        let control = self.options.provisioned.then(|| self.options.control.clone());
        let ensemble = self.options.ensemble.clone();
        let (wanted, known) = (self.wanted(prefix), self.agreed);
        let entering = async move {
            if let Some(ensemble) = ensemble
                && let Some(bar) = membership::verify(&*connection, &ensemble).await?
            {
                return Err(NotEntered::Barred(bar));
            }
            match control {
                Some(control) => provision::enter(connection, wanted, control).await,
                None => agree::enter(connection, wanted, known).await,
            }
        };
        self.ask(async move {
            Answer::Entered {
                sent,
                result: entering.await,
            }
        });
    }

    /// What our next contender is to be created with.
    pub(super) fn wanted(&self, prefix: String) -> Wanted {
        Wanted {
            root: self.options.root.clone(),
            prefix,
            data: contender_data(&self.options.identity, false, self.options.timing.stop_grace),
            mode: self.options.mode,
        }
    }

    pub(super) fn entered(&mut self, sent: BootInstant, result: Result<Entered, NotEntered>) {
        self.written(Write::Enter);
        match result {
            Ok(Entered { created, agreed }) => {
                self.acknowledge(sent);
                self.last_renewal = self.clock.now();
                self.agreed = Some(agreed);
                self.adopt(created, Some(agreed));
            }
            Err(NotEntered::Refused(refusal)) => self.fail(refusal),
            Err(NotEntered::Barred(bar)) => self.barred(bar),
            Err(NotEntered::Failed(error)) => {
                if let (EnsembleError::Throttled, Place::Entering { is_asked, .. }) =
                    (&error, &mut self.place)
                {
                    // Nothing was created.
                    *is_asked = false;
                }
                if !self.is_about_link(&error) {
                    let action = format!("cannot create a contender below {}", self.options.root);
                    self.fail(LockError::Refused { action, error });
                }
            }
        }
    }

    pub(super) fn found(&mut self, result: EnsembleResult<Option<Found>>) {
        self.written(Write::Enter);
        match result {
            Ok(Some(Found { created, agreed })) => self.adopt(created, agreed),
            // Not yet created. The request may still be on its way, and would be carried out when the
            // session comes back to the server that it was sent to: a second contender that nobody
            // knows of, for as long as the session lasts. So that ends, and another one begins.
            Ok(None) => self.begin_another_session(),
            Err(error) => {
                if !self.is_about_link(&error) {
                    let action = format!("cannot list {}", self.options.root);
                    self.fail(LockError::Refused { action, error });
                }
            }
        }
    }

    fn adopt(&mut self, created: Created, agreed: Option<Incarnation>) {
        let Link::Up(connection) = &self.link else { return };
        if created.owner != connection.session().id {
            // The server handed out another session without a word: none of ours is left.
            return self.session_expired();
        }
        self.refusal = None;
        self.bar_pause = Duration::ZERO;
        let name = created.path.rsplit('/').next().unwrap_or_default().to_owned();
        self.place = Place::In(Entry {
            name,
            path: created.path,
            token: created.czxid,
            agreed,
            ahead: None,
            is_listing: false,
            watched: HashMap::new(),
            past: Box::default(),
            is_our_turn: false,
            is_renewing: false,
            is_held: false,
            is_marked: false,
            is_own_watched: false,
            is_own_seen: false,
            predecessor_unclean: false,
        });
        for reply in self.contend_replies.drain(..) {
            let _ = reply.send(Ok(()));
        }
    }

    /// In the queue: list, watch, renew as the place asks for.
    pub(super) fn drive_queue(&mut self, connection: &Arc<E::Connection>) {
        self.drive_hold(connection);
        // It may have given the connection up, for a new one to the same server: what is asked over
        // the old one now would fail, and end the new one with it.
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
        let new: Vec<_> = ahead
            .place()
            .watch
            .into_iter()
            .filter(|name| !entry.watched.contains_key(name))
            .collect();
        entry.watched.extend(new.iter().map(|name| (name.clone(), false)));
        for name in new {
            self.watch_predecessor(connection, name);
        }
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
                        self.tell_strangers(listed.bystanders);
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
                if ContenderData::parse(&node.data).is_held() {
                    entry.watched.insert(name.clone(), true);
                    // Once it is our turn, whoever went before was before us.
                    if !entry.is_our_turn
                        && let Some(ahead) = &mut entry.ahead
                    {
                        let is_outdated = ahead.seen_held(&name);
                        // Who held before it is its own business (it waited, if it had to).
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
            }
            Err(EnsembleError::NoNode) => self.predecessor_event(name, NodeEvent::Deleted),
            Err(error) => {
                if !self.is_about_link(&error) {
                    let action = format!("cannot watch {}/{name}", self.options.root);
                    self.fail(LockError::Refused { action, error });
                }
            }
        }
    }

    pub(super) fn predecessor_event(&mut self, name: String, event: NodeEvent) {
        let Place::In(entry) = &mut self.place else { return };
        match event {
            NodeEvent::Changed => {
                let Link::Up(connection) = &self.link else { return };
                let connection = Arc::clone(connection);
                self.watch_predecessor(&connection, name);
            }
            NodeEvent::Deleted => {
                let was_held = entry.watched.remove(&name).unwrap_or(false);
                let Some(ahead) = &mut entry.ahead else { return };
                ahead.remove(&name, was_held);
                let place = ahead.place();
                let is_to_be_listed = place.position > 0 && !place.is_heir;
                // Somebody may have deleted our own contender by hand before. Then whoever is behind us has taken the
                // place of the heir, and holds now.
                let is_own_in_doubt = place.position == 0 && !entry.is_own_seen;
                if is_to_be_listed || is_own_in_doubt || !ahead.strangers().is_empty() {
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
        }
    }

    pub(super) fn ask_participants(&mut self, connection: &Arc<E::Connection>) {
        if self.queries.is_empty() || std::mem::replace(&mut self.is_listing_participants, true) {
            return;
        }
        let list = participant::list(
            Arc::clone(connection),
            self.options.root.clone(),
            self.options.mode,
        );
        self.ask_link(async move { Answer::Participants(list.await) });
    }

    pub(super) fn participants(&mut self, result: EnsembleResult<Vec<Participant>>) {
        self.is_listing_participants = false;
        let answer = match result {
            Ok(list) => Ok(list),
            Err(EnsembleError::Throttled) => return self.overloaded(),
            // Asked again over the next connection.
            Err(error) if error.is_connection() => return,
            Err(EnsembleError::SessionExpired) => return self.session_expired(),
            Err(error) => {
                let action = format!("cannot list {}", self.options.root);
                Err(LockError::Refused { action, error })
            }
        };
        for reply in self.queries.drain(..) {
            let _ = reply.send(answer.clone());
        }
    }
}
