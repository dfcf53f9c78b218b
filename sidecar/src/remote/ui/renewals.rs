//! When holders have renewed, as it is seen from outside: the ensemble tells of each change of a holder's node.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_lock::BootInstant;
use serde::Serialize;

/// The last renewals of the holders of all locks, by the numbers of the locks.
#[derive(Clone, Default)]
pub(super) struct Renewals(Arc<Mutex<HashMap<u64, Holders>>>);

/// By the names of their contenders.
type Holders = HashMap<String, Seen>;

#[derive(Clone, Copy)]
struct Seen {
    at: BootInstant,
    /// Whether a renewal was seen then. Otherwise we look since then.
    is_renewal: bool,
}

/// What the page gets. Ages, and no times of a clock: those of the browser's machine may differ.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Age {
    /// In milliseconds.
    age: u64,
    is_seen: bool,
}

impl Renewals {
    /// These contenders hold the lock. Of those that are new no renewal has been seen since `now`.
    pub(super) fn hold<'a>(&self, lock: u64, holders: impl Iterator<Item = &'a str>, now: BootInstant) {
        let mut all = self.all();
        let known = all.remove(&lock).unwrap_or_default();
        let new = Seen {
            at: now,
            is_renewal: false,
        };
        let seen = holders.map(|holder| (holder.to_owned(), known.get(holder).copied().unwrap_or(new)));
        all.insert(lock, seen.collect());
    }

    /// The node of a contender has changed: a renewal, if it is a holder's.
    pub(super) fn renewed(&self, lock: u64, contender: &str, now: BootInstant) {
        let mut all = self.all();
        if let Some(seen) = all.get_mut(&lock).and_then(|holders| holders.get_mut(contender)) {
            *seen = Seen {
                at: now,
                is_renewal: true,
            };
        }
    }

    /// Nothing is seen of the lock any more.
    pub(super) fn forget(&self, lock: u64) {
        self.all().remove(&lock);
    }

    /// How old the last renewals of a lock's holders are, in JSON.
    pub(super) fn told(&self, lock: u64) -> String {
        self.told_at(lock, BootInstant::now())
    }

    fn told_at(&self, lock: u64, now: BootInstant) -> String {
        let all = self.all();
        let ages: BTreeMap<_, _> = all
            .get(&lock)
            .into_iter()
            .flatten()
            .map(|(contender, seen)| {
                let age = Age {
                    age: u64::try_from((now - seen.at).as_millis()).unwrap_or(u64::MAX),
                    is_seen: seen.is_renewal,
                };
                (contender, age)
            })
            .collect();
        serde_json::to_string(&ages).expect("names and numbers")
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Holders>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn ages_are_told_of_holders_alone_and_that_no_renewal_was_seen_yet() {
        let renewals = Renewals::default();
        renewals.hold(1, ["a"].into_iter(), at(1_000));
        assert_eq!(
            renewals.told_at(1, at(1_400)),
            r#"{"a":{"age":400,"isSeen":false}}"#
        );
        renewals.renewed(1, "a", at(2_000));
        renewals.renewed(1, "waits", at(2_000));
        // It holds on, and another one joins it.
        renewals.hold(1, ["a", "b"].into_iter(), at(2_100));
        assert_eq!(
            renewals.told_at(1, at(2_500)),
            r#"{"a":{"age":500,"isSeen":true},"b":{"age":400,"isSeen":false}}"#
        );
        renewals.hold(1, ["b"].into_iter(), at(3_000));
        assert_eq!(
            renewals.told_at(1, at(3_000)),
            r#"{"b":{"age":900,"isSeen":false}}"#
        );
        renewals.forget(1);
        assert_eq!(renewals.told_at(1, at(4_000)), "{}");
    }
}
