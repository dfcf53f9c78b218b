//! Takes the place of a silent contender before us, and limits how long we act ourselves: crate::takeover.

use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::place::Place;
use super::state::{Task, Write};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Ensemble, EnsembleError, MultiError, Op};
use crate::loss::LossReason;
use crate::record::{Said, TookOver, contender_data};
use crate::timing;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// The moment by which everything under the lock has to have ended: by both leases.
    pub(super) fn deadline(&self) -> Option<BootInstant> {
        let of_session = self.lease.deadline()?;
        let Place::In(entry) = &self.place else {
            return Some(of_session);
        };
        match &entry.lease {
            Some(lease) => Some(lease.deadline()?.min(of_session)),
            None => Some(of_session),
        }
    }

    /// Whether both leases are valid at `moment`.
    pub(super) fn is_valid(&self, moment: BootInstant) -> bool {
        self.lease.is_valid(moment) && self.is_safe_from_takeover(moment)
    }

    /// Whether the takeover lease is valid at `moment`.
    pub(super) fn is_safe_from_takeover(&self, moment: BootInstant) -> bool {
        match &self.place {
            Place::In(entry) => entry.lease.is_none_or(|lease| lease.is_valid(moment)),
            _ => true,
        }
    }

    /// Time between two renewals: our contender may state a shorter lease than the present times would give.
    pub(super) fn interval(&self) -> Duration {
        let lease = match &self.place {
            Place::In(entry) => entry.lease.map(|lease| lease.duration()),
            _ => None,
        };
        timing::interval(self.options.timing.interval(), lease)
    }

    /// Counts an acknowledged write to our own contender that was sent at `sent`: a renewal of both leases.
    pub(super) fn acknowledge_own(&mut self, sent: BootInstant) -> bool {
        if !self.acknowledge(sent) {
            return false;
        }
        if let Place::In(entry) = &mut self.place
            && let Some(lease) = &mut entry.lease
        {
            lease.renew(sent);
        }
        true
    }

    /// The path of our contender, and its data anew. They state L if there is one, and whose place we are about to take.
    pub(super) fn say_anew(&mut self, took_over: Option<&TookOver>) -> Option<(String, Vec<u8>)> {
        let survivors = self.word().survivors;
        let Place::In(entry) = &mut self.place else {
            return None;
        };
        entry.states_lease |= entry.lease.is_some();
        entry.is_said_unsure |= entry.said_survivors != survivors;
        entry.said_survivors = survivors;
        let said = Said {
            is_held: entry.is_marked,
            since: entry.since.clone(),
            stop_budget: self.options.timing.stop_grace,
            lease: entry.lease.map(|lease| lease.duration()),
            took_over: took_over.or(entry.took_over.as_ref()).cloned(),
            survivors: entry.said_survivors,
        };
        Some((entry.path.clone(), contender_data(&self.options.identity, &said)))
    }

    /// When the next contender before us has been silent for too long.
    pub(super) fn takeover_due(&self) -> Option<BootInstant> {
        self.silent().map(|(due, _)| due)
    }

    /// The contender before us whose silence lasts too long first, and from when on.
    fn silent(&self) -> Option<(BootInstant, &str)> {
        let Place::In(entry) = &self.place else {
            return None;
        };
        let is_leaving = self.releasing.is_some() || self.lost.is_some();
        let is_asked = self.writes[Write::TakeOver as usize].is_some();
        if entry.lease.is_none() || entry.ahead.is_none() || entry.is_our_turn || is_leaving || is_asked {
            return None;
        }
        let silent = entry.watched.iter().filter_map(|(name, seen)| {
            let sighting = seen.sighting?;
            Some((sighting.silent_at(), name.as_str()))
        });
        silent.min()
    }

    /// Deletes a contender before us that has been silent for longer than its lease, if it is still silent, and renews
    /// our own in the same transaction.
    pub(super) fn drive_takeover(&mut self, connection: &Arc<E::Connection>) {
        let now = self.clock.now();
        let Some((_, name)) = self.silent().filter(|(due, _)| *due < now) else {
            return;
        };
        let name = name.to_owned();
        let Place::In(entry) = &mut self.place else { return };
        let Some((seen, sighting)) = entry
            .watched
            .get(&name)
            .and_then(|seen| Some((seen, seen.sighting?)))
        else {
            return;
        };
        let of = TookOver {
            contender: name.clone(),
            pod: seen.pod.clone(),
            silent_millis: u64::try_from(sighting.silence(now).as_millis()).unwrap_or(u64::MAX),
        };
        entry.taking = Some(of.clone());
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
                path: format!("{}/{name}", self.options.root),
                version: Some(version),
            },
        ]);
        self.ask(async move {
            Answer::TookOver {
                sent,
                version,
                result: taking.await,
            }
        });
    }

    pub(super) fn took_over(&mut self, sent: BootInstant, version: i32, result: Result<(), MultiError>) {
        self.written(Write::TakeOver);
        let Err(MultiError { index, error }) = result else {
            if !self.acknowledge_own(sent) {
                return self.drop_link();
            }
            return self.has_taken_over();
        };
        match error {
            EnsembleError::NoNode if index == 0 => self.entry_is_gone(LossReason::ContenderDeleted),
            // It has renewed or left: the event is on its way, and with the next answer the wait begins anew.
            EnsembleError::BadVersion | EnsembleError::NoNode => self.has_not_taken_over(version),
            error if index == 1 && !error.is_connection() && error != EnsembleError::SessionExpired => {
                if let Place::In(entry) = &self.place {
                    tracing::warn!(
                        lock.path = self.options.root,
                        contender = entry.taking.as_ref().map(|of| of.contender.as_str()),
                        %error,
                        "Cannot take the place of a silent contender; waiting for the end of its session"
                    );
                }
                self.has_not_taken_over(version);
            }
            error => self.contender_refused("take the place of a silent contender with", error),
        }
    }

    /// Our contender has the place that we asked for.
    pub(super) fn has_taken_over(&mut self) {
        let Place::In(entry) = &mut self.place else { return };
        let Some(of) = entry.taking.take() else { return };
        tracing::warn!(
            lock.path = self.options.root,
            contender = of.contender,
            pod = of.pod.as_ref().map(|pod| pod.name.as_str()),
            silent_millis = of.silent_millis,
            "Took the place of a contender that did not renew for longer than its lease"
        );
        entry.took_over = Some(of);
        if let Some(observer) = &self.options.observer {
            observer.took_over();
        }
    }

    /// Forgets that version of the contender whose place we have not got, and leaves it to its session until another
    /// one is seen.
    fn has_not_taken_over(&mut self, version: i32) {
        if let Place::In(entry) = &mut self.place
            && let Some(of) = entry.taking.take()
            && let Some(seen) = entry.watched.get_mut(&of.contender)
        {
            seen.sighting.take_if(|sighting| sighting.version == version);
        }
    }
}
