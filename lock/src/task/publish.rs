//! The published status of the lock.

use super::Task;
use super::place::Place;
use crate::clock::Clock;
use crate::ensemble::{Connection, Ensemble};
use crate::loss::LossReason;
use crate::state::{LockState, LockStatus};
use crate::ticket::{Ticket, unique_part};

impl<E: Ensemble, C: Clock> Task<E, C> {
    fn state(&self) -> LockState {
        if self.wishes.is_releasing() {
            return LockState::Releasing;
        }
        if self.wishes.lost().is_some() {
            return LockState::Lost;
        }
        let is_sure = self.link.is_up() && self.lease.proof_due().is_none();
        match &self.place {
            Place::In(entry) if entry.tenure.is_held() && is_sure => LockState::Held,
            Place::In(entry) if entry.tenure.is_held() => LockState::Suspended,
            Place::In(_) if self.link.is_up() => LockState::Waiting,
            Place::Out if !self.wishes.is_contending() => LockState::Released,
            _ => LockState::Connecting,
        }
    }

    /// With what another process can go on: only while we hold, since the owner alone gives up what is held.
    fn ticket(&self) -> Option<Ticket> {
        let entry = self.place.entry()?;
        let is_ours = entry.tenure.is_held() && !self.wishes.is_over();
        let key = self.link.key().filter(|_| is_ours && self.options.gives_ticket)?;
        Some(Ticket {
            session: key,
            session_timeout: self.lease.session_timeout(),
            contender: unique_part(entry.own.name())?,
            token: entry.own.token(),
            lease: entry.renewals.lease(),
        })
    }

    /// Publishes the status if it has changed, and logs a change of state.
    pub(super) fn publish(&mut self) {
        let state = self.state();
        let entry = self.place.entry();
        let takeover_deadline = match entry {
            Some(entry) => entry.renewals.deadline(),
            // The place of a lost lock may be taken by now: its deadline stays.
            None if self.wishes.lost().is_some() => self.status.borrow().takeover_deadline,
            None => None,
        };
        let session = self.link.last().map(|last| last.session());
        let new = LockStatus {
            state,
            token: entry.map(|entry| entry.own.token()),
            contender: entry.map(|entry| entry.own.name().to_owned()),
            position: entry.and_then(|entry| entry.line.position()),
            lease_end: self.lease.end(),
            takeover_deadline,
            lease_duration: entry.and_then(|entry| entry.renewals.lease()),
            // The lock root's users choose the names of contenders: what is shown of them is short and plain.
            took_over: entry
                .and_then(|entry| entry.statement.took_over())
                .filter(|of| of.is_plausible())
                .cloned(),
            session: session.map(|session| session.id),
            session_timeout: session.map(|_| self.lease.session_timeout()),
            predecessor_unclean: entry.is_some_and(|entry| {
                entry.tenure.is_predecessor_unclean() && !self.is_settled(entry.own.token())
            }),
            yield_requested: entry.is_some_and(|entry| self.control.asks(entry.own.name())),
            ticket: self.ticket(),
            loss: self.wishes.lost(),
            refusal: self.obstacles.refusal().cloned(),
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
