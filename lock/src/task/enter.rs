//! Enters the queue: until the contender is created.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::answer::Answer;
use super::command::Reply;
use super::past::Record;
use super::place::{Entry, Left, Place};
use super::requests::agreement::{self, Entered, NotEntered, Wanted};
use super::requests::find::{Found, find};
use super::requests::{membership, provision};
use super::state::{Link, Task, Write};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Created, Ensemble, EnsembleError, EnsembleResult, Incarnation};
use crate::error::LockError;
use crate::lease::Lease;
use crate::record::{ContenderData, Said, contender_data, now};
use crate::takeover::TakeoverLease;
use crate::ticket::protected;

impl<E: Ensemble, C: Clock> Task<E, C> {
    pub(super) fn contend(&mut self, reply: Reply<()>) {
        if let Some(reason) = self.lost {
            let _ = reply.send(Err(LockError::Lost(reason)));
            return;
        }
        if let Some(releasing) = &mut self.releasing {
            // The present contender leaves; the command is about the next one.
            releasing.queue_again = true;
            return self.contend_replies.push(reply);
        }
        self.is_contending = true;
        self.begin_with_what_is_left();
        if !self.is_barred {
            self.refusal = None;
        }
        if matches!(self.place, Place::In(_)) {
            let _ = reply.send(Ok(()));
        } else {
            self.contend_replies.push(reply);
        }
    }

    /// Begins with the contender that another process has left to us, if there is one.
    pub(super) fn begin_with_what_is_left(&mut self) {
        let Some(ticket) = self.options.ticket.take() else {
            return;
        };
        if self.session.is_some() || !matches!(self.place, Place::Out) {
            return;
        }
        tracing::info!(
            lock.path = self.options.root,
            lock.token = ticket.token.0,
            "Going on with the contender of the process before us"
        );
        self.lease = Lease::new(ticket.session_timeout, self.options.timing.tick_time);
        self.resuming = Some(ticket);
        self.is_urgent = true;
        // Its creation was acknowledged. If it is not there any more, it is gone.
        self.place = Place::Entering {
            prefix: self.prefix(ticket.contender),
            is_asked: false,
            is_uncertain: true,
            left: Some(Left { lease: ticket.lease }),
        };
    }

    /// The name of our contender up to its number. Its unique part identifies it after a lost answer (Curator's
    /// "protection").
    pub(super) fn prefix(&self, unique: Uuid) -> String {
        format!(
            "{}/{}{}",
            self.options.root,
            protected(unique),
            self.options.mode.marker()
        )
    }

    pub(super) fn drive_entering(&mut self, connection: &Arc<E::Connection>) {
        let Place::Entering {
            prefix,
            is_asked,
            is_uncertain,
            ..
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
            self.ask(async move { Answer::Found(Box::new(find(connection, root, prefix, mode).await)) });
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
                None => agreement::enter(connection, wanted, known).await,
            }
        };
        self.ask(async move {
            Answer::Entered {
                sent,
                result: entering.await,
            }
        });
    }

    /// The data with which to create our next contender.
    fn wanted(&self, prefix: String) -> Wanted {
        // It states L when it renews: a waiter does not.
        let said = Said {
            is_held: false,
            since: now(),
            stop_budget: self.options.timing.stop_grace,
            lease: None,
            took_over: None,
            survivors: None,
        };
        Wanted {
            root: self.options.root.clone(),
            prefix,
            data: contender_data(&self.options.identity, &said),
            mode: self.options.mode,
        }
    }

    pub(super) fn entered(&mut self, sent: BootInstant, result: Result<Entered, NotEntered>) {
        self.written(Write::Enter);
        match result {
            Ok(Entered { created, agreed }) => {
                let is_acknowledged = self.acknowledge(sent);
                self.last_renewal = self.clock.now();
                self.agreed = Some(agreed);
                self.adopt(created, Some(agreed), is_acknowledged.then_some(sent));
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
            Ok(Some(Found {
                created,
                agreed,
                data,
            })) => {
                let left = match &self.place {
                    Place::Entering { left, .. } => *left,
                    _ => None,
                };
                self.adopt(created, agreed, None);
                if let Some(left) = left {
                    self.go_on_with(left, data);
                }
            }
            // Not created yet. The request may still be on its way, and the server that it was sent to would carry it
            // out when the session comes back to that server. That would be a second, unknown contender until the
            // session ends. So we leave this session to expire, and begin another one.
            Ok(None) => self.begin_another_session(),
            Err(error) => {
                if !self.is_about_link(&error) {
                    let action = format!("cannot list {}", self.options.root);
                    self.fail(LockError::Refused { action, error });
                }
            }
        }
    }

    /// `sent` is when its creation was sent, if that was acknowledged.
    fn adopt(&mut self, created: Created, agreed: Option<Incarnation>, sent: Option<BootInstant>) {
        let Link::Up(connection) = &self.link else { return };
        if created.owner != connection.session().id {
            // The server handed out another session without an error: our contender is gone.
            return self.session_expired();
        }
        self.refusal = None;
        self.bar_pause = Duration::ZERO;
        let name = created.path.rsplit('/').next().unwrap_or_default().to_owned();
        let lease = self.options.timing.lease().map(|lease| {
            let mut lease = TakeoverLease::new(lease);
            if let Some(sent) = sent {
                lease.renew(sent);
            }
            lease
        });
        let is_left = self.place.is_left();
        self.place = Place::In(Box::new(Entry {
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
            since: now(),
            lease,
            states_lease: false,
            took_over: None,
            said_survivors: None,
            is_said_unsure: false,
            taking: None,
            is_own_watched: false,
            is_own_seen: false,
            predecessor_unclean: false,
            is_left,
        }));
        for reply in self.contend_replies.drain(..) {
            let _ = reply.send(Ok(()));
        }
    }

    /// Our contender is one that another process has left to us, with these data.
    fn go_on_with(&mut self, left: Left, data: ContenderData) {
        let own = self.options.identity.pod.as_ref();
        if own.is_some_and(|own| data.pod.as_ref().is_none_or(|pod| pod.uid != own.uid)) {
            tracing::error!(
                lock.path = self.options.root,
                "The contender that was left to us is not this pod's; leaving its session alone"
            );
            return self.nothing_is_left();
        }
        let writes_holders = self.options.writes_holders();
        let Place::In(entry) = &mut self.place else { return };
        if writes_holders {
            // The process before us may have written it.
            entry.past.record = Record::Asked;
        }
        entry.lease = left.lease.map(TakeoverLease::new);
        entry.states_lease = left.lease.is_some();
        entry.is_marked = data.is_held();
        entry.since = data.since.unwrap_or_else(now);
        entry.took_over = data.took_over;
        entry.said_survivors = data.survivors;
        if let Link::Up(connection) = &self.link {
            connection.adopt(&entry.path);
        }
    }
}
