//! When the status of a lock may be written.

use std::time::Duration;

use tokio::time::Instant;

use super::Last;

#[derive(Clone, Debug, Default)]
pub(crate) struct Telling {
    written: Last,
    /// Since when the lock is between two holders.
    between: Option<Instant>,
    /// The number of the last loss of the ensemble that the status speaks of.
    lost: u64,
}

// === impl Telling ===

impl Telling {
    /// How long the next write waits, so that there is this pause between two.
    pub(crate) fn rest(&self, pause: Duration) -> Duration {
        self.written.rest(pause)
    }

    pub(crate) fn written(&mut self) {
        self.written.done();
    }

    /// Whether the lock is between two holders now. How long it may be before its status says so.
    pub(crate) fn between(&mut self, is_between: bool, patience: Duration) -> Duration {
        if !is_between {
            self.between = None;
            return Duration::ZERO;
        }
        let since = *self.between.get_or_insert_with(Instant::now);
        patience.saturating_sub(since.elapsed())
    }

    /// Whether the status speaks of this loss of the ensemble.
    pub(crate) fn speaks_of_loss(&self, number: u64) -> bool {
        self.lost == number
    }

    pub(crate) fn spoke_of_loss(&mut self, number: u64) {
        self.lost = number;
    }
}
