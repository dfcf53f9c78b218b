//! The session's connection: opens it, notices that it is dead, and takes the session to another server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::answer::Answer;
use super::haste::Haste;
use super::place::Place;
use super::requests::attach::{Attached, Known, attach};
use super::state::{Link, Task, Write};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Closed, Connection, Ensemble, EnsembleError};
use crate::error::LockError;
use crate::lease::Lease;
use crate::loss::LossReason;

/// Longest wait for one server.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

/// With less patience a slow disk of the ensemble would look like a lost connection.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// How long a quorum write may stay without an answer before the server counts as cut off.
    ///
    /// One interval: with the defaults (T = 15 s) the session then moves 3.75 s after the last answer, and the
    /// application would have to stop 6 s after it. Two intervals would leave 0.4 s to reach another server.
    ///
    /// A short takeover lease leaves less time for the writes that it depends on: half of what it can spare is for the
    /// way to another server.
    fn patience_for(&self, write: Write) -> Duration {
        let timing = &self.options.timing;
        let patience = timing.interval().max(LEAST_PATIENCE);
        let renews = matches!(write, Write::Renewal | Write::Mark | Write::TakeOver);
        match (timing.lease(), timing.least_spare()) {
            (Some(_), Some(spare)) if renews => patience.min(spare / 2),
            _ => patience,
        }
    }

    /// From when on a write has been without an answer for too long.
    pub(super) fn stuck_at(&self) -> Option<BootInstant> {
        let stuck = Write::ALL.into_iter().filter_map(|write| {
            let sent = self.writes[write as usize]?;
            Some(sent + self.patience_for(write))
        });
        stuck.min()
    }

    fn patience_for_servers(&self) -> Duration {
        (self.options.timing.interval() / 2).clamp(Duration::from_millis(250), LONGEST_PATIENCE)
    }

    fn needs_link(&self) -> bool {
        self.is_contending
            || self.releasing.is_some()
            || !self.queries.is_empty()
            || (matches!(self.place, Place::In(_)) && (self.lost.is_none() || self.is_retained()))
    }

    pub(super) fn keep_the_link(&mut self) {
        match self.link {
            Link::Down if self.needs_link() => {
                let haste = if self.is_urgent || (self.session.is_some() && self.is_asked()) {
                    Haste::AtOnce
                } else {
                    Haste::of_waiter(self.options.timing.session_timeout, self.patience_for_servers())
                };
                self.start_attach(self.server + 1, haste);
            }
            Link::Up(_) if self.stuck_at().is_some_and(|stuck| self.clock.now() > stuck) => {
                tracing::info!(
                    server = self.ensemble.server(self.server),
                    "Writes stay unanswered; taking the session to another server"
                );
                self.drop_link();
                self.start_attach(self.server + 1, Haste::AtOnce);
            }
            // Requests are urgent: do not sit out the random pause of a waiter.
            Link::Attaching(Haste::Spread(_)) if self.session.is_some() && self.is_asked() => {
                self.drop_link();
                self.start_attach(self.server + 1, Haste::AtOnce);
            }
            _ => {}
        }
    }

    /// Whether a caller waits for an answer that has to come from the ensemble.
    fn is_asked(&self) -> bool {
        self.releasing.is_some() || !self.queries.is_empty() || !self.contend_replies.is_empty()
    }

    /// Proves a lease at once, if there is none and four renewals would take too long: when a server takes the session
    /// over, the leader restarts its timeout.
    pub(super) fn prove_by_attaching(&mut self) {
        self.drop_link();
        self.start_attach(self.server, Haste::AtOnce);
    }

    fn start_attach(&mut self, first: usize, haste: Haste) {
        self.link = Link::Attaching(haste);
        let known = match (&self.session, self.resuming) {
            (Some(connection), _) => Known::Connection(Arc::clone(connection)),
            (None, Some(ticket)) => Known::Ticket(ticket),
            (None, None) => Known::Nothing,
        };
        let attached = attach(
            Arc::clone(&self.ensemble),
            self.clock.clone(),
            known,
            first % self.ensemble.servers(),
            haste,
            self.patience_for_servers(),
        );
        self.ask_link(async move { Answer::Attached(attached.await) });
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(&self.place, Place::In(entry) if entry.is_held)
    }

    pub(super) fn attached(&mut self, result: Result<Attached<E::Connection>, EnsembleError>) {
        let Attached {
            asked,
            server,
            connection,
        } = match result {
            Ok(attached) => attached,
            Err(EnsembleError::SessionExpired) => return self.session_expired(),
            Err(EnsembleError::AuthFailed) => return self.refused("connect", EnsembleError::AuthFailed),
            Err(error) => return self.refused("connect", error),
        };
        let granted = connection.session().timeout;
        match (&self.session, self.resuming.take()) {
            (None, None) => self.lease.create(asked, granted),
            (None, Some(ticket)) => {
                self.key = Some(ticket.session);
                self.lease.attach(asked, granted);
            }
            (Some(_), _) => self.lease.attach(asked, granted),
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
            if self.session.is_some() && server != self.server {
                observer.session_moved();
            }
        }
        self.server = server;
        let connection = Arc::new(connection);
        let closed = connection.closed();
        self.ask_link(async move { Answer::Closed(closed.await) });
        if self.options.gives_ticket && self.key.is_none() {
            let key = connection.key();
            self.ask_link(async move { Answer::Key(key.await) });
        }
        self.session = Some(Arc::clone(&connection));
        self.link = Link::Up(connection);
        tracing::debug!(server = self.ensemble.server(server), "Session served");
    }

    pub(super) fn closed(&mut self, closed: Closed) {
        match closed {
            Closed::Disconnected => self.drop_link(),
            Closed::Expired => self.session_expired(),
            Closed::AuthFailed => self.refused("connect", EnsembleError::AuthFailed),
        }
    }

    /// A request or a watch reports that the connection is gone. The next step depends on why, and that answer may
    /// still be behind this one in the line.
    pub(super) fn connection_lost(&mut self) {
        let why = match &self.link {
            Link::Up(connection) => connection.closed().now_or_never(),
            _ => None,
        };
        self.closed(why.unwrap_or(Closed::Disconnected));
    }

    /// The server did not carry out a request. The lease limits how long we hold; meanwhile the task sends everything
    /// again, to the next server and after a pause.
    pub(super) fn overloaded(&mut self) {
        tracing::info!(
            server = self.ensemble.server(self.server),
            "Server overloaded; taking the session to another server"
        );
        self.drop_link();
        self.start_attach(self.server + 1, Haste::AfterOverload);
    }

    /// Whether more than a place in the queue depends on the connection: the lock, its release, or the next turn. Or the
    /// place itself, if another contender may take it: also that of a lost lock that is retained.
    fn has_something_to_lose(&self) -> bool {
        self.releasing.is_some()
            || self.is_heir()
            || self.place.is_left()
            || matches!(&self.place, Place::In(entry) if entry.is_our_turn || entry.states_lease)
    }

    /// Forgets the connection and all requests over it.
    pub(super) fn drop_link(&mut self) {
        if matches!(self.link, Link::Up(_)) {
            self.is_urgent = self.has_something_to_lose();
        }
        self.link_answers.clear();
        self.answers.clear();
        self.writes = [None; Write::ALL.len()];
        self.link = Link::Down;
        self.is_control_watched = false;
        self.is_barred = false;
        self.is_listing_participants = false;
        if let Some(releasing) = &mut self.releasing {
            releasing.is_asked = false;
        }
        match &mut self.place {
            Place::Entering {
                is_asked,
                is_uncertain,
                ..
            } => {
                *is_uncertain |= *is_asked;
                *is_asked = false;
            }
            Place::In(entry) => {
                entry.is_listing = false;
                entry.is_own_watched = false;
                entry.is_own_seen = false;
                entry.watched.clear();
                // Events may have been missed, even the deletion of our own contender. So a contender that does not
                // hold yet lists the queue again, which shows the contenders before it and whether its own place is
                // still there.
                if !entry.is_held {
                    entry.is_our_turn = false;
                    entry.ahead = None;
                }
            }
            Place::Out => {}
        }
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

    /// The ensemble reports that the session is over: all our nodes are gone.
    pub(super) fn session_expired(&mut self) {
        let reason = if self.lease.is_valid(self.clock.now()) {
            tracing::error!(
                "The session was over before its lease: a client that reaches the ensemble has ended it, and the next \
                 contender may hold already"
            );
            LossReason::SessionEnded
        } else {
            LossReason::SessionExpired
        };
        self.forget_session();
        self.entry_is_gone(reason);
    }

    /// The contender that another process has left to us is gone, or never was its own: what runs under it has lost the
    /// lock.
    pub(super) fn nothing_is_left(&mut self) {
        self.forget_session();
        self.entry_is_gone(LossReason::ContenderDeleted);
    }

    /// Leaves a session in which we have no place to expire, and begins another one.
    pub(super) fn begin_another_session(&mut self) {
        if self.place.is_left() {
            return self.nothing_is_left();
        }
        tracing::info!(
            "The server may still create a contender that we asked for; queueing in another session, and leaving this \
             one to expire"
        );
        self.forget_session();
        self.leave();
        if self.releasing.is_some() {
            self.released();
        }
    }

    fn forget_session(&mut self) {
        self.drop_link();
        self.session = None;
        self.resuming = None;
        self.key = None;
        self.lease = Lease::new(self.options.timing.session_timeout, self.options.timing.tick_time);
    }

    /// Our contender does not exist any more.
    pub(super) fn entry_is_gone(&mut self, reason: LossReason) {
        let was_held = self.is_held() || self.place.is_left();
        self.leave();
        if self.releasing.is_some() {
            return self.released();
        }
        if was_held {
            self.lose(reason);
        } else if self.lost.is_none() && self.is_contending {
            // We only waited: create a new contender, at the end of the queue.
            self.refusal = None;
            tracing::warn!(reason = reason.name(), "Place in the queue lost; queueing again");
        }
    }

    fn refused(&mut self, action: &str, error: EnsembleError) {
        let action = match action {
            "connect" => match error {
                EnsembleError::Untrusted { .. } => "cannot connect to the ensemble".to_owned(),
                _ => format!("cannot connect to {}", self.ensemble.server(self.server)),
            },
            other => other.to_owned(),
        };
        self.fail(LockError::Refused { action, error });
    }

    /// Whether the contender stays although we cannot have the lock: something may still run under it. The lock is lost
    /// then, and the session goes on until our owner releases or abandons.
    pub(super) fn is_kept_through(&mut self, error: &LockError) -> bool {
        let is_in = matches!(self.place, Place::In(_));
        if !is_in || !self.is_retained() || self.releasing.is_some() {
            return false;
        }
        if self.lost.is_none() {
            tracing::error!(%error, "Lock refused; its contender stays until nothing is left of what ran under it");
            self.lose(LossReason::Refused);
        }
        self.refusal = Some(error.clone());
        true
    }

    /// Gives up for good: a retry would not help.
    pub(super) fn fail(&mut self, error: LockError) {
        tracing::error!(%error, "Lock refused");
        if self.is_held() {
            self.lose(LossReason::Refused);
        }
        self.drop_link();
        self.is_contending = false;
        // If the contender exists, it ends with its session, which we no longer keep alive.
        self.session = None;
        self.resuming = None;
        self.key = None;
        self.leave();
        self.refusal = Some(error.clone());
        for reply in self.contend_replies.drain(..) {
            let _ = reply.send(Err(error.clone()));
        }
        for reply in self.queries.drain(..) {
            let _ = reply.send(Err(error.clone()));
        }
        if let Some(releasing) = self.releasing.take() {
            for reply in releasing.replies {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }

    /// Ends the session at the servers, if one is known to serve it; otherwise it expires.
    pub(super) async fn close(mut self, done: tokio::sync::oneshot::Sender<()>) {
        self.drop_link();
        if let Some(connection) = self.session.take().and_then(Arc::into_inner) {
            connection.close_session().await;
        }
        let _ = done.send(());
    }
}
