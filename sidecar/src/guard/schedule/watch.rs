//! When a container beside the guard is searched next.

use std::time::Duration;

use lockkeeper_lock::BootInstant;

use super::times::{WATCH_LONGEST, WATCH_SHORTEST};

/// The next search of a container, and the interval of those after it while the container is without the lock.
#[derive(Debug)]
pub(super) struct Watch {
    at: BootInstant,
    every: Duration,
}

impl Watch {
    /// A search that is due at once.
    pub(super) fn new(now: BootInstant) -> Self {
        Self {
            at: now,
            every: WATCH_SHORTEST,
        }
    }

    /// When the next search is due.
    pub(super) fn at(&self) -> BootInstant {
        self.at
    }

    pub(super) fn is_due(&self, now: BootInstant) -> bool {
        now >= self.at
    }

    /// Searches next after this time.
    pub(super) fn after(&mut self, now: BootInstant, pause: Duration) {
        self.at = now + pause;
    }

    /// Searches again at the present interval.
    pub(super) fn again(&mut self, now: BootInstant) {
        self.at = now + self.every;
    }

    /// Something was found: a kubelet may be starting the container, so the interval is short again.
    pub(super) fn shortest(&mut self, now: BootInstant) {
        self.every = WATCH_SHORTEST;
        self.again(now);
    }

    /// Nothing was found: the interval doubles.
    pub(super) fn longer(&mut self, now: BootInstant) {
        self.every = (self.every * 2).min(WATCH_LONGEST);
        self.again(now);
    }
}
