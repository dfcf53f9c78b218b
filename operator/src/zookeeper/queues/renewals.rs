//! Which changes of contenders are mere renewals. A contender with a lease duration renews by writing its own data anew
//! (docs/safety.md, "The takeover lease"): an event each second or so, which says nothing new. If each were read, the
//! operator would read each holder and each heir each second.
//!
//! The data of such a contender say something new when it begins to hold. That cannot be while another one holds, unless
//! the lock has several holders; then another one left before. In doubt a change is read.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock_key::LockKey;

/// How long one of several holders may take to hold after another contender left, or after the queue was read. If it takes
/// longer, it is seen with [`AGAIN`].
const BEGINNING: Duration = Duration::from_secs(10);

/// How old a reading becomes, whatever the contender seems to write.
const AGAIN: Duration = Duration::from_secs(30);

/// Changes that come faster are no renewals: with no stop grace the shortest lease is 0.3 s (`Timing::check`), and
/// a renewal comes each eighth of it.
const FASTEST: Duration = Duration::from_millis(20);

/// The contenders that renew by their data, as far as they were read.
#[derive(Debug)]
pub(super) struct Renewals {
    begun: Instant,
    locks: HashMap<LockKey, OfLock>,
}

#[derive(Debug, Default)]
struct OfLock {
    /// When a contender left last, or when the queue was listed.
    changed: Option<Instant>,
    contenders: HashMap<String, Last>,
    held: usize,
}

#[derive(Debug)]
struct Last {
    is_held: bool,
    read: Instant,
    changed: Instant,
}

// === impl Renewals ===

impl Renewals {
    /// Knows none, from `now` on.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            begun: now,
            locks: HashMap::new(),
        }
    }

    /// A contender of a lock that is followed was read at `now`.
    pub(super) fn read(
        &mut self,
        key: &LockKey,
        name: &str,
        states_lease: bool,
        is_held: bool,
        now: Instant,
    ) {
        if let Some(of_lock) = self.locks.get_mut(key) {
            of_lock.remove(name);
        }
        if !states_lease {
            return;
        }
        let last = Last {
            is_held,
            read: now,
            changed: now,
        };
        let of_lock = self.locks.entry(key.clone()).or_default();
        of_lock.contenders.insert(name.to_owned(), last);
        of_lock.held += usize::from(is_held);
    }

    pub(super) fn listed(&mut self, key: &LockKey, now: Instant) {
        self.locks.entry(key.clone()).or_default().changed = Some(now);
    }

    pub(super) fn left(&mut self, key: &LockKey, name: &str, now: Instant) {
        let of_lock = self.locks.entry(key.clone()).or_default();
        of_lock.remove(name);
        of_lock.changed = Some(now);
    }

    /// A lock is not followed any more.
    pub(super) fn forget(&mut self, key: &LockKey) {
        self.locks.remove(key);
    }

    /// Forgets what matters no more at `now`; to be called from time to time.
    pub(super) fn tidy(&mut self, now: Instant) {
        let is_recent = |of_lock: &OfLock| of_lock.changed.is_some_and(|at| !is_after(now, at, BEGINNING));
        self.locks
            .retain(|_, of_lock| !of_lock.contenders.is_empty() || is_recent(of_lock));
    }

    /// Whether a change of a contender's data at `now` is no more than a renewal.
    pub(super) fn is_one(&mut self, key: &LockKey, name: &str, now: Instant) -> bool {
        let Some(of_lock) = self.locks.get_mut(key) else {
            return false;
        };
        let changed = of_lock.changed.max(Some(self.begun));
        let is_calm = changed.is_none_or(|at| is_after(now, at, BEGINNING));
        let another_holds = of_lock.held > 0;
        let Some(last) = of_lock.contenders.get_mut(name) else {
            return false;
        };
        let is_slow = is_after(now, last.changed, FASTEST);
        last.changed = now;
        is_slow && !is_after(now, last.read, AGAIN) && (last.is_held || (is_calm && another_holds))
    }
}

fn is_after(now: Instant, moment: Instant, time: Duration) -> bool {
    now.saturating_duration_since(moment) > time
}

// === impl OfLock ===

impl OfLock {
    fn remove(&mut self, name: &str) {
        let removed = self.contenders.remove(name);
        self.held -= usize::from(removed.is_some_and(|last| last.is_held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A holder and a waiter that renew by their data were read, and nothing happened for long, at the moment that is
    /// returned.
    fn two() -> (Renewals, LockKey, Instant) {
        let (key, begun) = (LockKey::new("shop", "report"), Instant::now());
        let (mut renewals, now) = (Renewals::new(begun), begun + 60 * SECOND);
        renewals.read(&key, "a", true, true, now);
        renewals.read(&key, "b", true, false, now);
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
        renewals.read(&key, "a", true, true, now + 31 * SECOND);
        assert!(renewals.is_one(&key, "a", now + 32 * SECOND));
    }

    #[test]
    fn a_waiter_is_read_as_long_as_nobody_holds_whatever_was_known_of_those_before_it() {
        let (mut renewals, key, now) = two();
        renewals.left(&key, "a", now + SECOND);
        // It takes its time.
        for second in 2..29 {
            assert!(!renewals.is_one(&key, "b", now + second * SECOND), "{second}");
        }
        renewals.read(&key, "b", true, true, now + 29 * SECOND);
        assert!(renewals.is_one(&key, "b", now + 30 * SECOND));
        // The last one that was known left, and then the next one was read for the first time.
        renewals.left(&key, "b", now + 31 * SECOND);
        renewals.read(&key, "c", true, false, now + 31 * SECOND);
        assert!(!renewals.is_one(&key, "c", now + 32 * SECOND));
    }

    #[test]
    fn one_of_several_holders_is_read_for_a_while_after_another_left_and_after_the_queue_was_read() {
        let (mut renewals, key, now) = two();
        renewals.read(&key, "c", true, true, now);
        renewals.left(&key, "a", now + SECOND);
        assert!(!renewals.is_one(&key, "b", now + 2 * SECOND));
        assert!(
            renewals.is_one(&key, "c", now + 2 * SECOND),
            "a holder that stays says nothing new"
        );
        assert!(renewals.is_one(&key, "b", now + 12 * SECOND));
        renewals.listed(&key, now + 13 * SECOND);
        assert!(!renewals.is_one(&key, "b", now + 14 * SECOND));
        let mut renewals = Renewals::new(now);
        renewals.read(&key, "a", true, true, now);
        renewals.read(&key, "b", true, false, now);
        assert!(
            !renewals.is_one(&key, "b", now + SECOND),
            "the operator has just connected"
        );
    }

    #[test]
    fn every_change_of_a_contender_without_a_lease_is_read_and_so_is_what_changes_faster_than_any_renewal() {
        let (mut renewals, key, now) = two();
        renewals.read(&key, "c", false, true, now);
        assert!(!renewals.is_one(&key, "c", now + SECOND) && !renewals.is_one(&key, "d", now + SECOND));
        assert!(renewals.is_one(&key, "a", now + SECOND));
        assert!(!renewals.is_one(&key, "a", now + SECOND + FASTEST));
        renewals.read(&key, "a", false, true, now);
        assert!(!renewals.is_one(&key, "a", now + 2 * SECOND));
    }

    #[test]
    fn nothing_is_kept_of_contenders_that_left_and_of_locks_that_are_not_followed() {
        let (mut renewals, key, now) = two();
        renewals.left(&key, "a", now);
        renewals.left(&key, "b", now);
        renewals.tidy(now + BEGINNING);
        assert_eq!(renewals.locks.len(), 1, "it matters for the next one");
        renewals.tidy(now + BEGINNING + SECOND);
        assert!(renewals.locks.is_empty());
        let (mut renewals, key, _) = two();
        renewals.forget(&key);
        assert!(renewals.locks.is_empty());
    }
}
