//! How long a quorum write may stay without an answer before the session goes to another server.

use std::time::Duration;

use super::Task;
use super::pending::Write;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::Ensemble;

/// With less patience a slow disk of the ensemble would look like a lost connection.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

/// More doublings than any patience needs to reach its limit.
const MOST_DOUBLINGS: u32 = 16;

/// What late answers have taught. If all servers are slow, every one of them looks cut off: the session would move for
/// ever, and each write would be sent again and never be counted. So patience doubles with each connection that is given
/// up, until a write is answered as soon as usual.
#[derive(Default)]
pub(super) struct Patience {
    doublings: u32,
}

impl Patience {
    /// A connection is given up because a write has no answer.
    fn ran_out(&mut self) {
        self.doublings = MOST_DOUBLINGS.min(self.doublings + 1);
    }

    fn stretch(&self, first: Duration, longest: Duration) -> Duration {
        first.saturating_mul(1 << self.doublings).min(longest.max(first))
    }
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// The patience with an ensemble that has not been slow before.
    ///
    /// One interval: with the defaults (T = 15 s, L = 8.5 s) the session then moves 2.1 s after the last answer, and the
    /// application would have to stop 5.2 s after it.
    ///
    /// A short takeover lease leaves less time for the writes that it depends on: half of what it can spare is for the
    /// way to another server.
    fn first_patience(&self, write: Write) -> Duration {
        let timing = &self.options.timing;
        let patience = timing.interval().max(LEAST_PATIENCE);
        match (timing.lease(), timing.least_spare()) {
            (Some(_), Some(spare)) if write.renews() => patience.min(spare / 2),
            _ => patience,
        }
    }

    /// Writes on which a lease depends may take all that the lease can spare: a second server was as slow as the first, so
    /// the way to a third one would not help. The others may take as long as a new session may.
    fn patience_for(&self, write: Write) -> Duration {
        let timing = &self.options.timing;
        let longest = match timing.least_spare() {
            Some(spare) if write.renews() => spare,
            _ => timing.longest_patience(),
        };
        self.patience.stretch(self.first_patience(write), longest)
    }

    /// From when on a write has been without an answer for too long.
    pub(super) fn stuck_at(&self) -> Option<BootInstant> {
        self.pending.stuck_at(|write| self.patience_for(write))
    }

    /// A write has had no answer for too long, and its connection is given up.
    pub(super) fn patience_ran_out(&mut self) {
        self.patience.ran_out();
    }

    /// A quorum write was acknowledged after `took`.
    pub(super) fn was_acknowledged_after(&mut self, took: Duration) {
        if took <= self.first_patience(Write::Renewal) {
            self.patience = Patience::default();
        }
    }
}
