//! Keeps the session connected: opens a connection, notices that it is dead, and takes the session to another server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::answer::Answer;
use super::link::Session;
use super::reconnect_pauses::Haste;
use super::requests::attach::{Attached, PatienceForServers, attach};
use super::{Entry, Task};
use crate::clock::Clock;
use crate::ensemble::{Closed, Connection, Ensemble, EnsembleError};
use crate::error::LockError;

/// Longest wait for one server at first.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

impl<E: Ensemble, C: Clock> Task<E, C> {
    fn patience_for_servers(&self) -> PatienceForServers {
        PatienceForServers {
            first: (self.options.timing.interval() / 2).clamp(Duration::from_millis(250), LONGEST_PATIENCE),
            longest: self.options.timing.longest_patience(),
        }
    }

    fn needs_link(&self) -> bool {
        let is_lost = self.wishes.lost().is_some();
        self.wishes.is_contending()
            || self.wishes.is_releasing()
            || self.queries.is_awaited()
            || (self.place.is_in() && (!is_lost || self.is_retained()))
    }

    pub(super) fn keep_the_link(&mut self) {
        if self.link.is_idle() && self.needs_link() {
            let haste = if self.link.is_urgent() || self.is_in_a_hurry() {
                Haste::AtOnce
            } else {
                Haste::of_waiter(
                    self.options.timing.session_timeout,
                    self.patience_for_servers().first,
                )
            };
            self.attach_to_another(haste);
        } else if self.link.is_up() && self.stuck_at().is_some_and(|stuck| self.clock.now() > stuck) {
            tracing::info!(
                server = self.ensemble.server(self.link.server()),
                "Writes stay unanswered; taking the session to another server"
            );
            self.patience_ran_out();
            self.drop_link();
            self.attach_to_another(Haste::AtOnce);
        } else if self.link.takes_its_time() && self.is_in_a_hurry() {
            // Requests are urgent: do not sit out the random pause of a waiter.
            self.drop_link();
            self.attach_to_another(Haste::AtOnce);
        }
    }

    /// Whether a session comes back for a caller who waits for an answer that has to come from the ensemble.
    fn is_in_a_hurry(&self) -> bool {
        self.link.last().is_some() && (self.wishes.is_awaited() || self.queries.is_awaited())
    }

    /// Proves a lease at once, if there is none and four renewals would take too long: when a server takes the session
    /// over, the leader restarts its timeout.
    pub(super) fn prove_by_attaching(&mut self) {
        self.drop_link();
        self.start_attach(self.link.server(), Haste::AtOnce);
    }

    fn attach_to_another(&mut self, haste: Haste) {
        self.start_attach(self.link.server() + 1, haste);
    }

    fn start_attach(&mut self, first: usize, haste: Haste) {
        self.link.attach(haste);
        let attached = attach(
            Arc::clone(&self.ensemble),
            self.clock.clone(),
            self.link.session(),
            first % self.ensemble.servers(),
            haste,
            self.patience_for_servers(),
        );
        self.pending.ask_link(attached, Answer::Attached);
    }

    pub(super) fn attached(&mut self, result: Result<Attached<E::Connection>, EnsembleError>) {
        let Attached {
            asked,
            server,
            connection,
        } = match result {
            Ok(attached) => attached,
            Err(EnsembleError::SessionExpired) => return self.session_expired(),
            Err(error) => return self.cannot_connect(error),
        };
        let granted = connection.session().timeout;
        match self.link.session() {
            Session::New => self.lease.create(asked, granted),
            Session::Left(_) => self.lease.attach(asked, granted),
            Session::Ours { .. } => self.lease.attach(asked, granted),
        }
        let timing = self.options.timing.granted(self.lease.session_timeout());
        if let Err(unsafe_timing) = timing.check() {
            let error = LockError::Timing {
                granted: timing.session_timeout,
                unsafe_timing,
            };
            if !self.is_kept_through(&error) {
                // The session has no request yet, or its contender relies on the old times: end it.
                return self.fail(error);
            }
        }
        self.options.timing = timing;
        if let Some(observer) = &self.options.observer {
            observer.connected();
            if self.link.last().is_some() && server != self.link.server() {
                observer.session_moved();
            }
        }
        let connection = Arc::new(connection);
        self.link.attached(server, Arc::clone(&connection));
        let closed = connection.closed();
        self.pending.ask_link(closed, Answer::Closed);
        if self.options.gives_ticket && self.link.key().is_none() {
            let key = connection.key();
            self.pending.ask_link(key, Answer::Key);
        }
        tracing::debug!(server = self.ensemble.server(server), "Session served");
    }

    pub(super) fn closed(&mut self, closed: Closed) {
        match closed {
            Closed::Disconnected => self.drop_link(),
            Closed::Expired => self.session_expired(),
            Closed::AuthFailed => self.cannot_connect(EnsembleError::AuthFailed),
        }
    }

    /// A request or a watch reports that the connection is gone. The next step depends on why, and that answer may
    /// still be behind this one in the line.
    pub(super) fn connection_lost(&mut self) {
        let connection = self.link.connection();
        let why = connection.and_then(|connection| connection.closed().now_or_never());
        self.closed(why.unwrap_or(Closed::Disconnected));
    }

    /// The server did not carry out a request. The lease limits how long we hold; meanwhile the task sends everything
    /// again, to the next server and after a pause.
    pub(super) fn overloaded(&mut self) {
        tracing::info!(
            server = self.ensemble.server(self.link.server()),
            "Server overloaded; taking the session to another server"
        );
        self.drop_link();
        self.attach_to_another(Haste::AfterOverload);
    }

    /// Whether more than a place in the queue depends on the connection: the lock, its release, or the next turn. Or the
    /// place itself, if another contender may take it: also that of a lost lock that is retained.
    fn has_more_to_lose(&self) -> bool {
        let depends = |entry: &Entry| entry.line.is_our_turn() || entry.renewals.states_lease();
        self.wishes.is_releasing()
            || self.place.is_heir()
            || self.place.is_left()
            || self.place.entry().is_some_and(depends)
    }

    /// Forgets the connection and all requests over it.
    pub(super) fn drop_link(&mut self) {
        self.link.down(self.has_more_to_lose());
        self.pending.forget();
        self.queries.disconnected();
        self.wishes.disconnected();
        self.control.outdated();
        self.place.disconnected();
    }

    /// Handles an error that is not about our request. Returns true if it is handled.
    pub(super) fn is_about_link(&mut self, error: &EnsembleError) -> bool {
        match error {
            EnsembleError::SessionExpired => self.session_expired(),
            EnsembleError::Throttled => self.overloaded(),
            error if error.is_connection() => self.connection_lost(),
            _ => return false,
        }
        true
    }

    fn cannot_connect(&mut self, error: EnsembleError) {
        let action = match error {
            EnsembleError::Untrusted { .. } => "cannot connect to the ensemble".to_owned(),
            _ => format!("cannot connect to {}", self.ensemble.server(self.link.server())),
        };
        self.fail(LockError::Refused { action, error });
    }
}
