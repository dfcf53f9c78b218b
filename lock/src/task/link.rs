//! The session's connection: getting one, noticing that it is no good, taking the session elsewhere.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::haste::Haste;
use super::{Answer, Link, Place, Task};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Closed, Connection, Ensemble, EnsembleError};
use crate::error::LockError;
use crate::lease::Lease;
use crate::state::LossReason;
use crate::timing::Timing;

/// Longest time that one server is waited for.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

/// Below this a slow disk of the ensemble would look like a cut.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

/// A new connection, and since when the leader counts the session anew.
pub(super) struct Attached<C> {
    /// Just before this server was asked.
    asked: BootInstant,
    server: usize,
    connection: C,
}

/// Tries the servers in turn until one takes the session, or says that it never will.
async fn attach<E: Ensemble, C: Clock>(
    ensemble: Arc<E>,
    clock: C,
    session: Option<Arc<E::Connection>>,
    first: usize,
    haste: Haste,
    patience: Duration,
) -> Result<Attached<E::Connection>, EnsembleError> {
    // A session that is yet to begin has nothing to come back to.
    let wait = session.as_ref().map_or(Duration::ZERO, |_| haste.wait());
    if !wait.is_zero() {
        clock.sleep(wait).await;
    }
    let mut pause = Duration::from_millis(50);
    let mut is_told = false;
    loop {
        let mut last = None;
        for server in (first..first + ensemble.servers()).map(|index| index % ensemble.servers()) {
            let asked = clock.now();
            match ensemble.attach(server, session.as_deref(), patience).await {
                Ok(connection) => {
                    return Ok(Attached {
                        asked,
                        server,
                        connection,
                    });
                }
                Err(error) if error.is_connection() => {
                    tracing::debug!(server = ensemble.server(server), %error, "Server not reached");
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if session.is_none()
            && let Some(objection) = ensemble.objection().await
        {
            return Err(objection);
        }
        if let (Some(error), false) = (last, is_told) {
            tracing::warn!(%error, "No server reached; trying again");
            is_told = true;
        }
        let (now, longest) = haste.pause(pause);
        clock.sleep(now).await;
        pause = (pause * 2).min(longest);
    }
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// How long a quorum write may stay without an answer before the server counts as cut off.
    ///
    /// One interval: with the defaults (T = 15 s) the session is then taken elsewhere 3.75 s after
    /// the last answer, and the application would be told to stop 6 s after it. Two would leave
    /// 0.4 s for the way to another server.
    pub(super) fn patience_for_writes(&self) -> Duration {
        self.options.timing.renew_interval.max(LEAST_PATIENCE)
    }

    fn patience_for_servers(&self) -> Duration {
        (self.options.timing.renew_interval / 2).clamp(Duration::from_millis(250), LONGEST_PATIENCE)
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
            Link::Up(_) => {
                let stuck = self
                    .unanswered_since()
                    .is_some_and(|sent| self.clock.now() > sent + self.patience_for_writes());
                if stuck {
                    tracing::info!(
                        server = self.ensemble.server(self.server),
                        "Writes stay unanswered; taking the session to another server"
                    );
                    self.drop_link();
                    self.start_attach(self.server + 1, Haste::AtOnce);
                }
            }
            // Whoever asks for something does not wait for the turn of a waiter.
            Link::Attaching(Haste::Spread(_)) if self.session.is_some() && self.is_asked() => {
                self.drop_link();
                self.start_attach(self.server + 1, Haste::AtOnce);
            }
            _ => {}
        }
    }

    /// Whether somebody waits for an answer that only the ensemble can give.
    fn is_asked(&self) -> bool {
        self.releasing.is_some() || !self.queries.is_empty() || !self.contend_replies.is_empty()
    }

    /// Proves a lease at once, where there is none and waiting for four renewals would take too
    /// long: a server asked to take the session over makes the leader count it anew.
    pub(super) fn prove_by_attaching(&mut self) {
        self.drop_link();
        self.start_attach(self.server, Haste::AtOnce);
    }

    fn start_attach(&mut self, first: usize, haste: Haste) {
        self.link = Link::Attaching(haste);
        let attached = attach(
            Arc::clone(&self.ensemble),
            self.clock.clone(),
            self.session.clone(),
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
        if self.session.is_none() {
            self.lease.create(asked, granted);
        } else {
            self.lease.attach(asked, granted);
        }
        let timing = renegotiated(self.options.timing, self.lease.session_timeout());
        if let Err(unsafe_timing) = timing.check() {
            // Nothing was asked of the session yet, or it is held under the old terms: end it.
            return self.fail(LockError::Timing {
                granted: timing.session_timeout,
                unsafe_timing,
            });
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

    /// A request or a watch says that the connection is gone. Why it went decides what is next, and
    /// that answer may still wait in the line behind this one.
    pub(super) fn connection_lost(&mut self) {
        let why = match &self.link {
            Link::Up(connection) => connection.closed().now_or_never(),
            _ => None,
        };
        self.closed(why.unwrap_or(Closed::Disconnected));
    }

    /// The server did not do what it was asked. The lease says how long we hold; meanwhile everything is
    /// asked again, of the next server and not at once.
    pub(super) fn overloaded(&mut self) {
        tracing::info!(
            server = self.ensemble.server(self.server),
            "Server overloaded; taking the session to another server"
        );
        self.drop_link();
        self.start_attach(self.server + 1, Haste::AfterOverload);
    }

    /// Whether more than a place in the queue hangs on the connection: the lock, its release, or the next turn.
    fn has_something_to_lose(&self) -> bool {
        self.releasing.is_some()
            || self.is_heir()
            || matches!(&self.place, Place::In(entry) if entry.is_our_turn)
    }

    /// Forgets the connection and everything that was asked over it.
    pub(super) fn drop_link(&mut self) {
        if matches!(self.link, Link::Up(_)) {
            self.is_urgent = self.has_something_to_lose();
        }
        self.link_answers.clear();
        self.answers.clear();
        self.writes = [None; 5];
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
                // Events may have been missed, also of our own end: whoever does not hold yet asks again who is ahead, and
                // so whether its own place is still there.
                if !entry.is_held {
                    entry.is_our_turn = false;
                    entry.ahead = None;
                }
            }
            Place::Out => {}
        }
    }

    /// What to do about an answer that is not about our request. True when there is nothing more
    /// to do about it.
    pub(super) fn is_about_link(&mut self, error: &EnsembleError) -> bool {
        match error {
            EnsembleError::SessionExpired => self.session_expired(),
            EnsembleError::Throttled => self.overloaded(),
            error if error.is_connection() => self.connection_lost(),
            _ => return false,
        }
        true
    }

    /// The ensemble says so itself: all our nodes are gone.
    pub(super) fn session_expired(&mut self) {
        let reason = if self.lease.is_valid(self.clock.now()) {
            tracing::error!(
                "The session was over before its lease: somebody who reaches the ensemble has ended it, and the next \
                 contender may hold already"
            );
            LossReason::SessionEnded
        } else {
            LossReason::SessionExpired
        };
        self.forget_session();
        self.entry_is_gone(reason);
    }

    /// Leaves a session in which we have no place to expire: nobody has ended it.
    pub(super) fn begin_another_session(&mut self) {
        tracing::info!(
            "Whether a contender was asked for in vain is not known; queueing in another session, and leaving this one to \
             expire"
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
        self.lease = Lease::new(self.options.timing.session_timeout, self.options.timing.tick_time);
    }

    /// Our contender does not exist any more.
    pub(super) fn entry_is_gone(&mut self, reason: LossReason) {
        let was_held = self.is_held();
        self.leave();
        if self.releasing.is_some() {
            return self.released();
        }
        if was_held {
            self.lose(reason);
        } else if self.lost.is_none() && self.is_contending {
            // We only waited: a new contender, at the end of the queue.
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

    /// Gives up: what the user asked for cannot be had, and asking again would not help.
    pub(super) fn fail(&mut self, error: LockError) {
        tracing::error!(%error, "Lock refused");
        if self.is_held() {
            self.lose(LossReason::Refused);
        }
        self.drop_link();
        self.is_contending = false;
        // A contender that may exist ends with its session: nothing keeps that alive now.
        self.session = None;
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

    /// Ends the session at the servers, if it is known to be served; else it expires.
    pub(super) async fn close(mut self, done: tokio::sync::oneshot::Sender<()>) {
        self.drop_link();
        if let Some(connection) = self.session.take().and_then(Arc::into_inner) {
            connection.close_session().await;
        }
        let _ = done.send(());
    }
}

/// The times with another session timeout: an interval that was an eighth of it stays one.
fn renegotiated(timing: Timing, granted: Duration) -> Timing {
    let renew_interval = if timing.renew_interval == timing.session_timeout / 8 {
        granted / 8
    } else {
        timing.renew_interval
    };
    Timing {
        session_timeout: granted,
        renew_interval,
        ..timing
    }
}
