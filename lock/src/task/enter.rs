//! Enters the queue: until the contender is created.

use std::sync::Arc;

use uuid::Uuid;

use super::answer::Answer;
use super::command::Reply;
use super::entering::Entering;
use super::line::Line;
use super::own::Own;
use super::past::Past;
use super::pending::Write;
use super::place::Place;
use super::renewals::Renewals;
use super::requests::agreement::{self, Entered, NotEntered, Wanted};
use super::requests::bar::Bar;
use super::requests::find::{Found, find};
use super::requests::{membership, provision};
use super::statement::Statement;
use super::tenure::Tenure;
use super::{Entry, Task};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Created, Ensemble, EnsembleError, EnsembleResult, Incarnation, NodeEvent};
use crate::error::LockError;
use crate::lease::Lease;
use crate::record::{ContenderData, Said, contender_data, now};
use crate::ticket::{Ticket, protected};

impl<E: Ensemble, C: Clock> Task<E, C> {
    pub(super) fn contend(&mut self, reply: Reply<()>) {
        if let Some(reason) = self.wishes.lost() {
            let _ = reply.send(Err(LockError::Lost(reason)));
            return;
        }
        self.wishes.contend(reply);
        if self.wishes.is_releasing() {
            return;
        }
        self.begin_with_what_is_left();
        if !matches!(self.place, Place::Barred) {
            self.obstacles.clear();
        }
        if self.place.is_in() {
            self.wishes.entered();
        }
    }

    /// Begins with the contender that another process has left to us, if there is one.
    pub(super) fn begin_with_what_is_left(&mut self) {
        let Some(ticket) = self.options.ticket.take() else {
            return;
        };
        if !self.link.is_new() || !matches!(self.place, Place::Out) {
            return;
        }
        tracing::info!(
            lock.path = self.options.root,
            lock.token = ticket.token.0,
            "Going on with the contender of the previous process"
        );
        self.lease = Lease::new(ticket.session_timeout, self.options.timing.tick_time);
        self.link.resume(ticket);
        self.place = Place::Entering(Entering::left(self.prefix(ticket.contender), ticket));
    }

    /// The name of our contender up to its number. Its unique part identifies it after a lost answer (Curator's
    /// "protection").
    fn prefix(&self, unique: Uuid) -> String {
        format!(
            "{}/{}{}",
            self.options.root,
            protected(unique),
            self.options.mode.marker()
        )
    }

    /// Out of the queue: enters it if our owner wants that.
    pub(super) fn drive_out(&mut self, connection: &Arc<E::Connection>) {
        if self.wishes.is_contending() {
            self.place = Place::Entering(Entering::new(self.prefix(Uuid::new_v4())));
            self.drive_entering(connection);
        }
    }

    pub(super) fn drive_entering(&mut self, connection: &Arc<E::Connection>) {
        let Place::Entering(entering) = &mut self.place else {
            return;
        };
        let Some((prefix, may_exist)) = entering.begin() else {
            return;
        };
        let root = self.options.root.clone();
        let connection = Arc::clone(connection);
        let sent = self.writing(Write::Enter);
        if may_exist {
            let mode = self.options.mode;
            let finding = find(connection, root, prefix, mode);
            return self.pending.ask(finding, |found| Answer::Found(Box::new(found)));
        }
        let control = self.options.provisioned.then(|| self.options.control.clone());
        let ensemble = self.options.ensemble.clone();
        let (wanted, known) = (self.wanted(prefix), self.terms.agreed());
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
        self.pending
            .ask(entering, move |result| Answer::Entered { sent, result });
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
        self.pending.written(Write::Enter);
        match result {
            Ok(Entered { created, agreed }) => {
                let is_acknowledged = self.acknowledge(sent);
                self.terms.agree(agreed);
                self.adopt(created, Some(agreed), is_acknowledged.then_some(sent));
            }
            Err(NotEntered::Refused(refusal)) => self.fail(refusal),
            Err(NotEntered::Barred(bar)) => self.barred(bar),
            Err(NotEntered::Failed(error)) => {
                if let (EnsembleError::Throttled, Place::Entering(entering)) = (&error, &mut self.place) {
                    // Nothing was created.
                    entering.not_carried_out();
                }
                let action = format!("cannot create a contender below {}", self.options.root);
                self.refused(action, error);
            }
        }
    }

    /// The contender was not created. Checks again when something changes, or may have changed.
    fn barred(&mut self, bar: Bar) {
        let Bar {
            refusal,
            changed,
            then,
        } = bar;
        self.obstacles.wait_for(Some(refusal), &self.options.root);
        if self.wishes.is_releasing() {
            return self.released();
        }
        self.place = Place::Barred;
        let pause = self.terms.next_pause(changed.is_some());
        let clock = self.clock.clone();
        let changed = changed.unwrap_or_else(|| Box::pin(std::future::pending()));
        let change = async move {
            tokio::select! {
                event = changed => event,
                () = clock.sleep(pause) => then,
            }
        };
        self.pending.ask(change, Answer::Unbarred);
    }

    pub(super) fn unbarred(&mut self, event: NodeEvent) {
        self.place = Place::Out;
        if event == NodeEvent::Disconnected {
            self.connection_lost();
        }
    }

    pub(super) fn found(&mut self, result: EnsembleResult<Option<Found>>) {
        self.pending.written(Write::Enter);
        match result {
            Ok(Some(Found {
                created,
                agreed,
                data,
            })) => {
                let ticket = match &self.place {
                    Place::Entering(entering) => entering.ticket(),
                    _ => None,
                };
                self.adopt(created, agreed, None);
                if let Some(ticket) = ticket {
                    self.go_on_with(ticket, data);
                }
            }
            // Not created yet. The request may still be on its way, and the server that it was sent to would carry it
            // out when the session comes back to that server. That would be a second, unknown contender until the
            // session ends. So we leave this session to expire, and begin another one.
            Ok(None) => self.begin_another_session(),
            Err(error) => self.refused(format!("cannot list {}", self.options.root), error),
        }
    }

    /// `sent` is when its creation was sent, if that was acknowledged.
    fn adopt(&mut self, created: Created, agreed: Option<Incarnation>, sent: Option<BootInstant>) {
        let Some(connection) = self.link.connection() else {
            return;
        };
        if created.owner != connection.session().id {
            // The server handed out another session without an error: our contender is gone.
            return self.session_expired();
        }
        self.obstacles.clear();
        self.terms.admitted();
        let mut renewals = Renewals::of_waiter(self.options.timing.lease(), self.clock.now());
        if let Some(sent) = sent {
            renewals.acknowledged(sent);
        }
        let is_left = self.place.is_left();
        self.place = Place::In(Box::new(Entry {
            own: Own::new(created, agreed),
            line: Line::unknown(),
            past: Past::default(),
            tenure: if is_left { Tenure::Left } else { Tenure::NotHeld },
            statement: Statement::of_waiter(),
            renewals,
        }));
        self.wishes.entered();
    }

    /// Our contender is one that another process has left to us, with these data.
    fn go_on_with(&mut self, ticket: Ticket, data: ContenderData) {
        let own = self.options.identity.pod.as_ref();
        if own.is_some_and(|own| data.pod.as_ref().is_none_or(|pod| pod.uid != own.uid)) {
            tracing::error!(
                lock.path = self.options.root,
                "The contender that was left to us is not this pod's; leaving its session alone"
            );
            return self.nothing_is_left();
        }
        let Place::In(entry) = &mut self.place else { return };
        if self.options.writes_holders() {
            entry.past = Past::unsure();
        }
        entry.renewals.go_on(ticket.lease);
        entry.statement = Statement::left(data);
        if let Some(connection) = self.link.connection() {
            connection.adopt(entry.own.path());
        }
    }
}
