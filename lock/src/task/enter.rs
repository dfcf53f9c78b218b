//! Enters the queue: until the contender is created.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::command::Reply;
use super::place::{Entry, Place};
use super::requests::agreement::{self, Entered, NotEntered, Wanted};
use super::requests::find::{Found, find};
use super::requests::{membership, provision};
use super::state::{Link, Task, Write};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Created, Ensemble, EnsembleError, EnsembleResult, Incarnation};
use crate::error::LockError;
use crate::record::{Said, contender_data, now};
use crate::takeover::TakeoverLease;

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
        if !self.is_barred {
            self.refusal = None;
        }
        if matches!(self.place, Place::In(_)) {
            let _ = reply.send(Ok(()));
        } else {
            self.contend_replies.push(reply);
        }
    }

    /// A unique name, which identifies the contender after a lost answer (Curator's "protection").
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
            Ok(Some(Found { created, agreed })) => self.adopt(created, agreed, None),
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
            is_own_watched: false,
            is_own_seen: false,
            predecessor_unclean: false,
        }));
        for reply in self.contend_replies.drain(..) {
            let _ = reply.send(Ok(()));
        }
    }
}
