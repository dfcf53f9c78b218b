//! Which changes of contenders are mere renewals. A contender with a lease duration renews by writing its own data anew
//! (docs/safety.md, "The takeover lease"): an event each second or so, which says nothing new. If each were read, the
//! operator would read each holder and each heir each second.
//!
//! The data of such a contender say something new when it begins to hold. That follows when another contender left the
//! queue. So changes are read for a while after that, and otherwise only now and then.

use std::collections::HashMap;
use std::time::Duration;

use lockkeeper_lock::ContenderData;
use tokio::time::Instant;

use crate::lock_key::LockKey;

/// How long a contender may take to hold after another one left. If it takes longer, it is seen with [`AGAIN`].
const BEGINNING: Duration = Duration::from_secs(10);

/// How old a reading becomes, whatever the contender seems to write.
const AGAIN: Duration = Duration::from_secs(30);

/// Changes that come faster are no renewals: with no stop grace the shortest lease is 0.3 s (`Timing::check`), and
/// a renewal comes each eighth of it.
const FASTEST: Duration = Duration::from_millis(20);

/// The contenders that renew by their data, as far as they were read.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    locks: HashMap<LockKey, OfLock>,
}

#[derive(Debug, Default)]
struct OfLock {
    /// When a contender left last.
    left: Option<Instant>,
    contenders: HashMap<String, Last>,
}

#[derive(Debug)]
struct Last {
    is_held: bool,
    read: Instant,
    changed: Instant,
}

// === impl Renewals ===

impl Renewals {
    /// A contender was read at `now`.
    pub(super) fn read(&mut self, key: &LockKey, name: &str, data: &ContenderData, now: Instant) {
        if data.lease().is_none() {
            return self.remove(key, name);
        }
        let last = Last {
            is_held: data.is_held(),
            read: now,
            changed: now,
        };
        let of_lock = self.locks.entry(key.clone()).or_default();
        of_lock.contenders.insert(name.to_owned(), last);
    }

    /// A contender left at `now`.
    pub(super) fn left(&mut self, key: &LockKey, name: &str, now: Instant) {
        self.remove(key, name);
        if let Some(of_lock) = self.locks.get_mut(key) {
            of_lock.left = Some(now);
        }
    }

    /// A lock is not followed any more.
    pub(super) fn forget(&mut self, key: &LockKey) {
        self.locks.remove(key);
    }

    /// Whether a change of a contender's data at `now` is no more than a renewal.
    pub(super) fn is_one(&mut self, key: &LockKey, name: &str, now: Instant) -> bool {
        let Some(of_lock) = self.locks.get_mut(key) else {
            return false;
        };
        let is_after = |moment: Instant, time| now.saturating_duration_since(moment) > time;
        let begins = of_lock.left.is_some_and(|left| !is_after(left, BEGINNING));
        let Some(last) = of_lock.contenders.get_mut(name) else {
            return false;
        };
        let is_slow = is_after(last.changed, FASTEST);
        last.changed = now;
        is_slow && !is_after(last.read, AGAIN) && (last.is_held || !begins)
    }

    fn remove(&mut self, key: &LockKey, name: &str) {
        let Some(of_lock) = self.locks.get_mut(key) else {
            return;
        };
        of_lock.contenders.remove(name);
        if of_lock.contenders.is_empty() {
            self.locks.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn data(state: &str, lease_millis: Option<u64>) -> ContenderData {
        ContenderData {
            state: state.to_owned(),
            lease_millis,
            ..ContenderData::default()
        }
    }

    /// A holder and a waiter that renew by their data were read at the moment that is returned.
    fn two() -> (Renewals, LockKey, Instant) {
        let (mut renewals, key, now) = (
            Renewals::default(),
            LockKey::new("shop", "report"),
            Instant::now(),
        );
        renewals.read(&key, "a", &data("held", Some(8_500)), now);
        renewals.read(&key, "b", &data("waiting", Some(8_500)), now);
        (renewals, key, now)
    }

    #[test]
    fn a_contender_that_renews_by_its_data_is_read_again_after_half_a_minute_and_not_before() {
        let (mut renewals, key, now) = two();
        for name in ["a", "b"] {
            for second in 1..=30 {
                assert!(
                    renewals.is_one(&key, name, now + second * SECOND),
                    "{name} {second}"
                );
            }
            assert!(!renewals.is_one(&key, name, now + 31 * SECOND));
        }
        renewals.read(&key, "a", &data("held", Some(8_500)), now + 31 * SECOND);
        assert!(renewals.is_one(&key, "a", now + 32 * SECOND));
    }

    #[test]
    fn a_waiter_is_read_when_it_may_have_begun_to_hold() {
        let (mut renewals, key, now) = two();
        renewals.left(&key, "a", now + SECOND);
        assert!(!renewals.is_one(&key, "b", now + 2 * SECOND));
        renewals.read(&key, "b", &data("held", Some(8_500)), now + 2 * SECOND);
        assert!(renewals.is_one(&key, "b", now + 3 * SECOND));
        // A holder of a semaphore that stays says nothing new.
        renewals.left(&key, "a", now + 4 * SECOND);
        assert!(renewals.is_one(&key, "b", now + 5 * SECOND));
    }

    #[test]
    fn every_change_of_a_contender_without_a_lease_is_read_and_so_is_what_changes_faster_than_any_renewal() {
        let (mut renewals, key, now) = two();
        renewals.read(&key, "c", &data("held", None), now);
        assert!(!renewals.is_one(&key, "c", now + SECOND) && !renewals.is_one(&key, "d", now + SECOND));
        assert!(renewals.is_one(&key, "a", now + SECOND));
        assert!(!renewals.is_one(&key, "a", now + SECOND + FASTEST));
        renewals.read(&key, "a", &data("held", None), now);
        assert!(!renewals.is_one(&key, "a", now + 2 * SECOND));
        renewals.left(&key, "b", now);
        assert!(renewals.locks.is_empty(), "nothing is kept of those that left");
        let (mut renewals, key, _) = two();
        renewals.forget(&key);
        assert!(renewals.locks.is_empty());
    }
}
