//! The published status of the lock.

use super::place::Place;
use super::state::{Link, Task};
use crate::clock::Clock;
use crate::ensemble::{Connection, Ensemble};
use crate::loss::LossReason;
use crate::record::TookOver;
use crate::state::{LockState, LockStatus};
use crate::ticket::{Ticket, unique_part};

impl<E: Ensemble, C: Clock> Task<E, C> {
    fn state(&self) -> LockState {
        if self.releasing.is_some() {
            return LockState::Releasing;
        }
        if self.lost.is_some() {
            return LockState::Lost;
        }
        let is_sure = matches!(self.link, Link::Up(_)) && self.lease.proof_due().is_none();
        match &self.place {
            Place::In(entry) if entry.is_held && is_sure => LockState::Held,
            Place::In(entry) if entry.is_held => LockState::Suspended,
            Place::In(_) if matches!(self.link, Link::Up(_)) => LockState::Waiting,
            Place::Out if !self.is_contending => LockState::Released,
            _ => LockState::Connecting,
        }
    }

    /// With what another process can go on: only while we hold, since the owner alone gives up what is held.
    fn ticket(&self) -> Option<Ticket> {
        let Place::In(entry) = &self.place else {
            return None;
        };
        let is_ours = entry.is_held && self.lost.is_none() && self.releasing.is_none();
        let key = self.key.filter(|_| is_ours && self.options.gives_ticket)?;
        Some(Ticket {
            session: key,
            session_timeout: self.lease.session_timeout(),
            contender: unique_part(&entry.name)?,
            token: entry.token,
            lease: entry.lease.map(|lease| lease.duration()),
        })
    }

    /// Publishes the status if it has changed, and logs a change of state.
    pub(super) fn publish(&mut self) {
        let state = self.state();
        let entry = match &self.place {
            Place::In(entry) => Some(entry),
            _ => None,
        };
        let takeover_deadline = match entry {
            Some(entry) => entry.lease.and_then(|lease| lease.deadline()),
            // The place of a lost lock may be taken by now: its deadline stays.
            None if self.lost.is_some() => self.status.borrow().takeover_deadline,
            None => None,
        };
        let session = self.session.as_deref().map(Connection::session);
        let new = LockStatus {
            state,
            token: entry.map(|entry| entry.token),
            contender: entry.map(|entry| entry.name.clone()),
            position: entry.and_then(|entry| {
                if entry.is_our_turn {
                    return Some(0);
                }
                entry.ahead.as_ref().map(|ahead| ahead.place().position)
            }),
            lease_end: self.lease.end(),
            takeover_deadline,
            lease_duration: entry.and_then(|entry| Some(entry.lease?.duration())),
            // The lock root's users choose the names of contenders: what is shown of them is short and plain.
            took_over: entry.and_then(|entry| entry.took_over.clone().filter(TookOver::is_plausible)),
            session: session.map(|session| session.id),
            session_timeout: session.map(|_| self.lease.session_timeout()),
            predecessor_unclean: entry.is_some_and(|entry| {
                entry.is_held && entry.predecessor_unclean && !self.is_settled(entry.token)
            }),
            yield_requested: entry.is_some_and(|entry| {
                self.control
                    .as_ref()
                    .is_some_and(|(control, _)| control.asks(&entry.name))
            }),
            ticket: self.ticket(),
            loss: self.lost,
            refusal: self.refusal.clone(),
        };
        self.status.send_if_modified(|old| {
            if *old == new {
                return false;
            }
            if old.state != new.state {
                tracing::info!(
                    lock.path = self.options.root,
                    lock.from = old.state.name(),
                    lock.to = new.state.name(),
                    lock.token = new.token.map(|token| token.0),
                    lock.lease = new
                        .lease_duration
                        .filter(|_| new.state == LockState::Held)
                        .map(tracing::field::debug),
                    lock.loss = new.loss.map(LossReason::name),
                    "Lock state changed"
                );
            }
            *old = new;
            true
        });
    }
}
