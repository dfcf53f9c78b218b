//! Takes the place of a silent contender before us, and limits how long we act ourselves: crate::takeover_lease.

use std::sync::Arc;
use std::time::Duration;

use super::Task;
use super::answer::Answer;
use super::line::Silent;
use super::pending::Write;
use super::place::Place;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Ensemble, EnsembleError, MultiError, Op};
use crate::loss::LossReason;
use crate::record::{TookOver, contender_data};
use crate::timing;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// The moment by which everything under the lock has to have ended: by both leases.
    pub(super) fn deadline(&self) -> Option<BootInstant> {
        let of_session = self.lease.deadline()?;
        match self.place.entry() {
            Some(entry) => entry.renewals.earlier_deadline(of_session),
            None => Some(of_session),
        }
    }

    /// Whether both leases are valid at `moment`.
    pub(super) fn is_valid(&self, moment: BootInstant) -> bool {
        self.lease.is_valid(moment) && self.is_safe_from_takeover(moment)
    }

    /// Whether the takeover lease is valid at `moment`.
    pub(super) fn is_safe_from_takeover(&self, moment: BootInstant) -> bool {
        let entry = self.place.entry();
        entry.is_none_or(|entry| entry.renewals.is_safe(moment))
    }

    /// Time between two renewals: our contender may state a shorter lease than the present times would give.
    pub(super) fn interval(&self) -> Duration {
        let lease = self.place.entry().and_then(|entry| entry.renewals.lease());
        timing::interval(self.options.timing.interval(), lease)
    }

    /// Counts an acknowledged write to our own contender that was sent at `sent`: a renewal of both leases.
    pub(super) fn acknowledge_own(&mut self, sent: BootInstant) -> bool {
        if !self.acknowledge(sent) {
            return false;
        }
        if let Place::In(entry) = &mut self.place {
            entry.renewals.acknowledged(sent);
        }
        true
    }

    /// The path of our contender, and its data anew. They state L if there is one, and whose place we are about to take.
    pub(super) fn say_anew(&mut self, taking: Option<&TookOver>) -> Option<(String, Vec<u8>)> {
        let survivors = self.word().survivors;
        let entry = self.place.entry_mut()?;
        let (lease, stop_budget) = (entry.renewals.state_lease(), self.options.timing.stop_grace);
        let said = entry.statement.say(survivors, lease, taking, stop_budget);
        let data = contender_data(&self.options.identity, &said);
        Some((entry.own.path().to_owned(), data))
    }

    /// When the next contender before us has been silent for too long.
    pub(super) fn takeover_due(&self) -> Option<BootInstant> {
        self.silent().map(|silent| silent.sighting.silent_at())
    }

    /// The contender before us whose silence lasts too long first.
    fn silent(&self) -> Option<Silent<'_>> {
        let entry = self.place.entry()?;
        entry.renewals.lease()?;
        if self.wishes.is_over() || self.pending.has_any(&[Write::TakeOver]) {
            return None;
        }
        entry.line.silent()
    }

    /// Deletes a contender before us that has been silent for longer than its lease, if it is still silent, and renews
    /// our own in the same transaction.
    pub(super) fn drive_takeover(&mut self, connection: &Arc<E::Connection>) {
        let now = self.clock.now();
        let silent = self.silent().filter(|silent| silent.sighting.silent_at() < now);
        let Some(Silent {
            sighting,
            name,
            pod,
            is_holder,
        }) = silent
        else {
            return;
        };
        let of = TookOver {
            contender: name.to_owned(),
            pod: pod.cloned(),
            silent_millis: u64::try_from(sighting.silence(now).as_millis()).unwrap_or(u64::MAX),
        };
        let Some((path, data)) = self.say_anew(Some(&of)) else {
            return;
        };
        let sent = self.writing(Write::TakeOver);
        let version = sighting.version;
        let taking = connection.multi(vec![
            Op::SetData {
                path,
                data,
                version: None,
            },
            Op::Delete {
                path: format!("{}/{}", self.options.root, of.contender),
                version: Some(version),
            },
        ]);
        if let Place::In(entry) = &mut self.place {
            entry.statement.take(of, is_holder);
        }
        self.pending.ask(taking, move |result| Answer::TookOver {
            sent,
            version,
            result,
        });
    }

    pub(super) fn took_over(&mut self, sent: BootInstant, version: i32, result: Result<(), MultiError>) {
        self.pending.written(Write::TakeOver);
        let Err(MultiError { index, error }) = result else {
            if !self.acknowledge_own(sent) {
                return self.drop_link();
            }
            return self.has_taken_over();
        };
        match error {
            EnsembleError::NoNode if index == 0 => self.entry_is_gone(LossReason::ContenderDeleted),
            // It has renewed or left: the event is on its way, and with the next answer the wait begins anew.
            EnsembleError::BadVersion | EnsembleError::NoNode => drop(self.has_not_taken_over(version)),
            error if index == 1 && !error.is_connection() && error != EnsembleError::SessionExpired => {
                let of = self.has_not_taken_over(version);
                tracing::warn!(
                    lock.path = self.options.root,
                    contender = of.map(|of| of.contender),
                    %error,
                    "Cannot take the place of a silent contender; waiting for the end of its session"
                );
            }
            error => self.contender_refused("take the place of a silent contender with", error),
        }
    }

    /// Our contender has the place that we asked for.
    pub(super) fn has_taken_over(&mut self) {
        let Place::In(entry) = &mut self.place else { return };
        let Some(of) = entry.statement.taken() else { return };
        tracing::warn!(
            lock.path = self.options.root,
            contender = of.contender,
            pod = of.pod.as_ref().map(|pod| pod.name.as_str()),
            silent_millis = of.silent_millis,
            "Took the place of a contender that did not renew for longer than its lease"
        );
        if let Some(observer) = &self.options.observer {
            observer.took_over();
        }
    }

    /// Forgets that version of the contender whose place we have not got, and leaves it to its session until another
    /// one is seen.
    fn has_not_taken_over(&mut self, version: i32) -> Option<TookOver> {
        let entry = self.place.entry_mut()?;
        let of = entry.statement.not_taken()?;
        entry.line.leave_to_its_session(&of.contender, version);
        Some(of)
    }
}
