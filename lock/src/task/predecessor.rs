//! The holders in the control node: finds those before us, and records us for later ones.
//!
//! A contender that asks ([`crate::LockOptions::ask_for_predecessor`]) records itself *before* it holds, in a
//! transaction that checks its own contender and the record that it has read. So every holder is recorded before
//! anything runs under its lock, and later holders find it. A record that cannot be read or written counts as a
//! predecessor that died.

use std::sync::Arc;

use super::answer::Answer;
use super::line::Line;
use super::past::{Farewell, Need, Record};
use super::pending::Write;
use super::place::Place;
use super::statement::Statement;
use super::{Entry, Task};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Ensemble, EnsembleError, MultiError, Op};
use crate::loss::LossReason;
use crate::record::{Claimant, Identity, Witness};
use crate::token::FencingToken;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Whether the owner has waited for those before us, under this token.
    pub(super) fn is_settled(&self, token: FencingToken) -> bool {
        self.options.ask_for_predecessor && self.word().settled == Some(token)
    }

    pub(super) fn farewell(&self, entry: &Entry) -> Farewell {
        let own = &entry.own;
        let witness = witness(&self.options.identity, &entry.statement, &entry.line);
        let is_settled = self.is_settled(own.token());
        entry
            .past
            .farewell(own.holder(), self.options.mode, is_settled, &witness)
    }

    /// Records us among the holders, also if another client has removed us, and removes those that we waited for.
    pub(super) fn keep_the_record(&mut self, connection: &Arc<E::Connection>, now: BootInstant) {
        let is_ready = self.options.ask_for_predecessor && self.lease.is_valid(now + self.least_lease(true));
        let is_settled = (self.place.entry()).is_some_and(|entry| self.is_settled(entry.own.token()));
        let Place::In(entry) = &mut self.place else { return };
        let is_due = entry.tenure.is_held() || (entry.line.is_our_turn() && is_ready);
        if !is_due || self.pending.has_any(&[Write::Record]) || !self.options.writes_holders() {
            return;
        }
        let (Some(read), Some(agreed)) = (self.control.current(), entry.own.agreed()) else {
            return;
        };
        let claimant = Claimant {
            own: entry.own.holder(),
            mode: self.options.mode,
            root: agreed.czxid,
            ahead: entry.line.ahead(),
            suspects: entry.line.suspects(),
        };
        let witness = witness(&self.options.identity, &entry.statement, &entry.line);
        let (data, version, is_settlement) =
            match entry.past.keep_record(read, &claimant, &witness, is_settled) {
                Need::Nothing => return,
                Need::GoWithout => return self.goes_without_a_record(Record::Impossible),
                Need::Write {
                    data,
                    version,
                    is_settlement,
                } => (data, version, is_settlement),
            };
        let path = entry.own.path().to_owned();
        let set = Op::SetData {
            path: self.options.control.clone(),
            data,
            version: Some(version),
        };
        let sent = self.writing(Write::Record);
        let writing = connection.multi(vec![Op::Check { path }, set]);
        self.pending.ask(writing, move |result| Answer::Recorded {
            sent,
            is_settlement,
            result,
        });
    }

    pub(super) fn recorded(
        &mut self,
        sent: BootInstant,
        is_settlement: bool,
        result: Result<(), MultiError>,
    ) {
        self.pending.written(Write::Record);
        let Err(MultiError { index, error }) = result else {
            self.acknowledge(sent);
            let Place::In(entry) = &mut self.place else { return };
            return entry.past.recorded(is_settlement);
        };
        match error {
            EnsembleError::NoNode if index == 0 => self.entry_is_gone(LossReason::ContenderDeleted),
            // Another client wrote to the control node, or deleted it: read again.
            EnsembleError::BadVersion | EnsembleError::NoNode => self.control.outdated(),
            EnsembleError::NoAuth => self.goes_without_a_record(Record::Refused),
            error => {
                let action = format!("cannot write the holder into {}", self.options.control);
                self.refused(action, error);
            }
        }
    }

    /// Goes on without a record: we cannot find out which holders died, and later holders cannot find us.
    fn goes_without_a_record(&mut self, record: Record) {
        let Place::In(entry) = &mut self.place else { return };
        let is_asked_for = self.options.ask_for_predecessor;
        entry.past.go_without(record, is_asked_for);
        if is_asked_for {
            tracing::warn!(
                path = self.options.control,
                "The control node cannot be used; treating the previous holder as one that did not release cleanly"
            );
        }
    }
}

/// What we know of holds, for people.
fn witness<'a>(identity: &'a Identity, statement: &'a Statement, line: &'a Line) -> Witness<'a> {
    Witness {
        identity,
        since: statement.held_since(),
        seen: line.ended(),
        took_over: statement.took_over(),
    }
}
