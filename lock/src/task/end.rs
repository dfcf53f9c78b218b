//! The end of a session, of a contender, or of the lock.

use std::sync::Arc;

use super::Task;
use super::place::Place;
use crate::clock::Clock;
use crate::ensemble::{Connection, Ensemble, EnsembleError};
use crate::error::LockError;
use crate::lease::Lease;
use crate::loss::LossReason;

impl<E: Ensemble, C: Clock> Task<E, C> {
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
        self.released();
    }

    fn forget_session(&mut self) {
        self.drop_link();
        self.link.forget_session();
        self.lease = Lease::new(self.options.timing.session_timeout, self.options.timing.tick_time);
    }

    /// Our contender does not exist any more.
    pub(super) fn entry_is_gone(&mut self, reason: LossReason) {
        let was_held = self.place.is_held() || self.place.is_left();
        self.leave();
        if self.wishes.is_releasing() {
            return self.released();
        }
        if was_held {
            self.lose(reason);
        } else if self.wishes.is_contending() {
            // We only waited: create a new contender, at the end of the queue.
            self.obstacles.clear();
            tracing::warn!(reason = reason.name(), "Place in the queue lost; queueing again");
        }
    }

    pub(super) fn lose(&mut self, reason: LossReason) {
        self.wishes.lose(reason);
        if let Place::In(entry) = &mut self.place {
            entry.tenure.end();
        }
    }

    /// A request about our contender has failed.
    pub(super) fn contender_refused(&mut self, verb: &str, error: EnsembleError) {
        if error == EnsembleError::NoNode {
            self.entry_is_gone(LossReason::ContenderDeleted);
        } else if !self.is_about_link(&error) {
            let action = match self.place.entry() {
                Some(entry) => format!("cannot {verb} {}", entry.own.path()),
                None => format!("cannot {verb}"),
            };
            let error = LockError::Refused { action, error };
            if !self.is_kept_through(&error) {
                self.fail(error);
            }
        }
    }

    /// Whether the contender stays although we cannot have the lock: something may still run under it. The lock is lost
    /// then, and the session goes on until our owner releases or abandons.
    pub(super) fn is_kept_through(&mut self, error: &LockError) -> bool {
        if !self.place.is_in() || !self.is_retained() || self.wishes.is_releasing() {
            return false;
        }
        if self.wishes.lost().is_none() {
            tracing::error!(%error, "Lock refused; its contender stays until nothing is left of what ran under it");
            self.lose(LossReason::Refused);
        }
        self.obstacles.refused(error.clone());
        true
    }

    /// A request was refused that `action` names, unless the error is about the connection.
    pub(super) fn refused(&mut self, action: String, error: EnsembleError) {
        if !self.is_about_link(&error) {
            self.fail(LockError::Refused { action, error });
        }
    }

    /// Gives up for good: a retry would not help.
    pub(super) fn fail(&mut self, error: LockError) {
        tracing::error!(%error, "Lock refused");
        if self.place.is_held() {
            self.lose(LossReason::Refused);
        }
        self.drop_link();
        // If the contender exists, it ends with its session, which we no longer keep alive.
        self.link.forget_session();
        self.leave();
        self.wishes.refused(&error);
        self.queries.answer(&Err(error.clone()));
        self.obstacles.refused(error);
    }

    /// Ends the session at the servers, if one is known to serve it; otherwise it expires.
    pub(super) async fn close(mut self, done: tokio::sync::oneshot::Sender<()>) {
        self.drop_link();
        let last = self.link.last();
        self.link.forget_session();
        if let Some(connection) = last.and_then(Arc::into_inner) {
            connection.close_session().await;
        }
        let _ = done.send(());
    }
}
