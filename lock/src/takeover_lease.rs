//! When a silent contender may be replaced, and until when it may act: pure arithmetic. docs/safety.md, "The takeover
//! lease", has the argument.
//!
//! Each side uses its own clock alone. A contender that renews counts from the *sending* of its newest acknowledged
//! renewal. The one behind it counts from the *answer* that showed that renewal first, and waits longer by the error of
//! two clocks. Whatever lies between, the second moment is later.

use std::time::Duration;

use crate::clock::BootInstant;
use crate::timing::{self, CLOCK_RATE_ERROR};

/// The takeover lease of our own contender: until its deadline no other contender can have taken its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakeoverLease {
    /// L, as our contender states it.
    lease: Duration,
    /// When the newest acknowledged renewal was sent.
    renewed: Option<BootInstant>,
}

impl TakeoverLease {
    /// Returns the lease of a contender that has not renewed yet.
    pub(crate) fn new(lease: Duration) -> Self {
        Self { lease, renewed: None }
    }

    /// Returns L.
    pub(crate) fn duration(&self) -> Duration {
        self.lease
    }

    /// Counts an acknowledged write to our own contender that was sent at `sent`. Its creation counts too: another
    /// contender can replace it only after it has stated L in a later write.
    pub(crate) fn renew(&mut self, sent: BootInstant) {
        self.renewed = self.renewed.max(Some(sent));
    }

    /// Returns the moment by which everything under the lock has to have ended; `None` before the first renewal.
    pub(crate) fn deadline(&self) -> Option<BootInstant> {
        Some(timing::deadline(self.renewed? + self.lease, self.lease))
    }

    /// Whether the deadline is after `now`.
    pub(crate) fn is_valid(&self, now: BootInstant) -> bool {
        self.deadline().is_some_and(|deadline| now < deadline)
    }
}

/// The newest version of another contender's node that we have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) version: i32,
    /// When the answer that showed it first had arrived.
    since: BootInstant,
    /// The L that the contender states.
    lease: Duration,
}

impl Sighting {
    /// Returns the sighting of a contender that states `lease`, from an answer that has arrived at `now` and shows this
    /// version. `None` if the version cannot be the condition of a write: -1 means any version (`DataTree`), and the
    /// number of changes wraps around.
    pub(crate) fn new(version: i32, lease: Duration, now: BootInstant) -> Option<Self> {
        (version >= 0).then_some(Self {
            version,
            since: now,
            lease,
        })
    }

    /// Returns the moment at which the contender has been silent for so long that it has stopped: L and the error of
    /// two clocks after the answer.
    pub(crate) fn silent_at(&self) -> BootInstant {
        self.since + self.lease.mul_f64(1.0 + CLOCK_RATE_ERROR)
    }

    /// Returns for how long the contender has been silent at `now`.
    pub(crate) fn silence(&self, now: BootInstant) -> Duration {
        now - self.since
    }

    /// Whether `self` says the same as an earlier sighting, whose wait goes on then.
    pub(crate) fn repeats(&self, earlier: &Self) -> bool {
        (self.version, self.lease) == (earlier.version, earlier.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    const L: Duration = Duration::from_secs(8);

    #[test]
    fn a_holder_counts_from_the_newest_renewal_that_was_sent_whatever_the_order_of_the_answers() {
        let mut own = TakeoverLease::new(L);
        assert!(!own.is_valid(at(0)));
        own.renew(at(2_000));
        own.renew(at(1_000));
        // 1 % of 8 s, and 200 ms.
        assert_eq!(own.deadline(), Some(at(10_000 - 280)));
        assert!(own.is_valid(at(9_719)) && !own.is_valid(at(9_720)));
    }

    #[test]
    fn the_one_behind_counts_from_an_answer_and_waits_for_longer_than_a_slower_clock_may_show() {
        let seen = Sighting::new(3, L, at(1_000)).unwrap();
        assert_eq!(seen.silent_at(), at(9_080));
        assert_eq!(seen.silence(at(9_100)), Duration::from_millis(8_100));
        let again = Sighting::new(3, L, at(2_000)).unwrap();
        assert!(again.repeats(&seen));
        assert!(!Sighting::new(4, L, at(2_000)).unwrap().repeats(&seen));
        assert!(!Sighting::new(3, L * 2, at(2_000)).unwrap().repeats(&seen));
        for no_condition in [-1, i32::MIN] {
            assert_eq!(Sighting::new(no_condition, L, at(1_000)), None);
        }
    }
}
