//! The holders in the control node: finds those before us, and records us for later ones.
//!
//! A contender that asks ([`crate::LockOptions::ask_for_predecessor`]) records itself *before* it holds, in a
//! transaction that checks its own contender and the record that it has read. So every holder is recorded before
//! anything runs under its lock, and later holders find it. A record that cannot be read or written counts as a
//! predecessor that died.

use std::sync::Arc;

use super::answer::Answer;
use super::past::{Farewell, Record};
use super::place::{Entry, Place};
use super::state::{Task, Write};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Ensemble, EnsembleError, MultiError, Op};
use crate::error::LockError;
use crate::loss::LossReason;
use crate::record::{Claimant, CleanRelease, Debts, Holder};
use crate::token::FencingToken;

fn own(entry: &Entry) -> Holder {
    Holder {
        contender: entry.name.clone(),
        token: entry.token,
    }
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Whether the owner has waited for those before us, under this token.
    pub(super) fn is_settled(&self, token: FencingToken) -> bool {
        self.options.ask_for_predecessor && self.word().settled == Some(token)
    }

    pub(super) fn farewell(&self, entry: &Entry) -> Farewell {
        Farewell {
            release: CleanRelease {
                contender: entry.name.clone(),
                token: entry.token,
            },
            mode: self.options.mode,
            is_written: entry.past.record.may_be_written() || !entry.past.debts.is_empty(),
            is_settled: self.is_settled(entry.token),
            debts: entry.past.debts.clone(),
        }
    }

    /// Records us among the holders, also if another client has removed us, and removes those that we waited for.
    pub(super) fn keep_the_record(&mut self, connection: &Arc<E::Connection>, now: BootInstant) {
        let least = self.least_lease(true);
        let is_read = self.is_control_watched && self.control_read == self.control_reading;
        let Place::In(entry) = &self.place else { return };
        let is_due = entry.is_held
            || (entry.is_our_turn && self.options.ask_for_predecessor && self.lease.is_valid(now + least));
        let is_under_way = self.writes[Write::Record as usize].is_some();
        if !is_due || !is_read || is_under_way || !self.options.writes_holders() {
            return;
        }
        let (Some((control, version)), Some(agreed)) = (&self.control, entry.agreed) else {
            return;
        };
        let claimant = Claimant {
            own: own(entry),
            mode: self.options.mode,
            root: agreed.czxid,
            ahead: entry.ahead.as_ref(),
            suspects: &entry.past.suspects,
        };
        let is_listed = control
            .holders
            .iter()
            .flatten()
            .any(|holder| *holder == claimant.own);
        let is_named = control.names(&claimant.own);
        let (data, record, debts, is_settlement) = match (version, entry.past.record) {
            (_, Record::Refused) => return,
            (None, Record::Impossible) => return,
            (None, _) => return self.goes_without_a_record(Record::Impossible),
            // It was written, but the answer was lost.
            (Some(_), Record::Asked) if is_listed => {
                let debts = control.debts(&claimant);
                return self.is_recorded(debts);
            }
            (Some(_), Record::Written) if is_named => {
                if entry.past.debts.is_empty() || !self.is_settled(entry.token) {
                    return;
                }
                let control = control.clone().without(&entry.past.debts);
                (control.to_data(), Record::Written, entry.past.debts.clone(), true)
            }
            (Some(_), Record::Written) => {
                // We wait once for those that we know already. If a client has removed others, they are unknown.
                let mut debts = entry.past.debts.clone();
                debts.more = debts.more.max(u32::from(control.holders.is_none()));
                let control = control.clone().with_claim(&claimant, &debts);
                (control.to_data(), Record::Written, debts, false)
            }
            (Some(_), _) => {
                let debts = control.debts(&claimant);
                let control = control.clone().with_claim(&claimant, &debts);
                (control.to_data(), Record::Asked, debts, false)
            }
        };
        let (Some(version), path) = (*version, entry.path.clone()) else {
            return;
        };
        let set = Op::SetData {
            path: self.options.control.clone(),
            data,
            version: Some(version),
        };
        let Place::In(entry) = &mut self.place else { return };
        entry.past.record = record;
        entry.past.debts = debts;
        let sent = self.writing(Write::Record);
        let writing = connection.multi(vec![Op::Check { path }, set]);
        self.ask(async move {
            Answer::Recorded {
                sent,
                is_settlement,
                result: writing.await,
            }
        });
    }

    pub(super) fn recorded(
        &mut self,
        sent: BootInstant,
        is_settlement: bool,
        result: Result<(), MultiError>,
    ) {
        self.written(Write::Record);
        let Err(MultiError { index, error }) = result else {
            self.acknowledge(sent);
            let Place::In(entry) = &mut self.place else { return };
            entry.past.record = Record::Written;
            if is_settlement {
                entry.past.debts = Debts::default();
            }
            return;
        };
        match error {
            EnsembleError::NoNode if index == 0 => self.entry_is_gone(LossReason::ContenderDeleted),
            // Another client wrote to the control node, or deleted it: read again.
            EnsembleError::BadVersion | EnsembleError::NoNode => self.is_control_watched = false,
            EnsembleError::NoAuth => self.goes_without_a_record(Record::Refused),
            error => {
                if !self.is_about_link(&error) {
                    let action = format!("cannot write the holder into {}", self.options.control);
                    self.fail(LockError::Refused { action, error });
                }
            }
        }
    }

    fn is_recorded(&mut self, debts: Debts) {
        let Place::In(entry) = &mut self.place else { return };
        entry.past.record = Record::Written;
        entry.past.debts = debts;
    }

    /// Goes on without a record: we cannot find out which holders died, and later holders cannot find us.
    fn goes_without_a_record(&mut self, record: Record) {
        let Place::In(entry) = &mut self.place else { return };
        entry.past.record = record;
        if self.options.ask_for_predecessor {
            tracing::warn!(
                path = self.options.control,
                "The control node cannot be used; the holder before counts as one that did not release cleanly"
            );
            entry.past.debts = Debts::unknown();
        }
    }
}
