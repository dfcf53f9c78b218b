//! How many events are kept in memory, and how many of them may name what they are about besides their lock.
//!
//! The client library sums events up: for six minutes, one with the same reason about the same objects raises only the
//! count of the first one, whose sentence stays. It keeps all of them for that. So an event about a holder names the
//! holder's pod as its related object, and events about two pods are two. But contenders say which pods they are, and
//! each new name is one more object in the store of the API server, and one more in memory here. Beyond a bound events
//! name their lock only, and are summed up. A tenant may also have thousands of locks, each with events of all reasons:
//! beyond another bound events are left out.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use tokio::time::Instant;

/// For how long an event is summed up with the ones before it (`CACHE_TTL` of the crate `kube-runtime`).
const SUMMED_UP: Duration = Duration::from_secs(360);

/// Events of one namespace within that time, by their reasons and locks: a thousand locks that change hands.
pub(super) const OF_NAMESPACE: usize = 2_000;

/// The same of all namespaces. Some 2.5 kB are kept of each: 20 MB.
pub(super) const IN_ALL: usize = 8_000;

/// Names of one namespace within that time: some hundred locks that change hands at once.
pub(super) const NAMED_OF_NAMESPACE: usize = 500;

/// Names in all: 10 MB.
pub(super) const NAMED_IN_ALL: usize = 4_000;

/// Events of the last minutes, within a bound.
#[derive(Debug)]
pub(super) struct Kept {
    of_namespace: usize,
    in_all: usize,
    hasher: RandomState,
    /// By namespace, hashes of what tells them apart, and when they were used last.
    used: HashMap<String, HashMap<u64, Instant>>,
}

// === impl Kept ===

impl Kept {
    /// None yet, and no more than so many.
    pub(super) fn within(of_namespace: usize, in_all: usize) -> Self {
        Self {
            of_namespace,
            in_all,
            hasher: RandomState::new(),
            used: HashMap::new(),
        }
    }

    /// Whether an event in a namespace may be told apart by this. What was told before may be told again.
    pub(super) fn allows(&mut self, namespace: &str, what: impl Hash) -> bool {
        let (what, now) = (self.hasher.hash_one(what), Instant::now());
        self.used.retain(|_, kept| {
            kept.retain(|_, used| now.duration_since(*used) < SUMMED_UP);
            !kept.is_empty()
        });
        let in_all: usize = self.used.values().map(HashMap::len).sum();
        let kept = self.used.get(namespace);
        let is_known = kept.is_some_and(|kept| kept.contains_key(&what));
        let has_room = kept.map_or(0, HashMap::len) < self.of_namespace && in_all < self.in_all;
        let is_allowed = is_known || has_room;
        if is_allowed {
            self.used
                .entry(namespace.to_owned())
                .or_default()
                .insert(what, now);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_makes_up_pods_makes_some_hundred_events_and_uses_up_nobodys_share() {
        let mut named = Kept::within(NAMED_OF_NAMESPACE, NAMED_IN_ALL);
        let made_up = (0..10_000).filter(|at| named.allows("evil", ("LockLost", "report", at)));
        assert_eq!(made_up.count(), NAMED_OF_NAMESPACE);
        assert!(named.allows("evil", ("LockLost", "report", &7)), "it is known");
        assert!(named.allows("shop", ("LockLost", "report", &10_000)));
        tokio::time::advance(SUMMED_UP).await;
        assert!(named.allows("evil", ("LockLost", "report", &10_000)));
        assert_eq!(named.used.values().map(HashMap::len).sum::<usize>(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn many_tenants_together_make_up_no_more_than_fits_into_memory() {
        for (of_namespace, in_all) in [(OF_NAMESPACE, IN_ALL), (NAMED_OF_NAMESPACE, NAMED_IN_ALL)] {
            let mut kept = Kept::within(of_namespace, in_all);
            // They are told in bursts; each look goes through all that is kept.
            let mut allowed = 0;
            for tenant in 0..in_all / of_namespace + 1 {
                let namespace = format!("evil-{tenant}");
                allowed += (0..of_namespace).filter(|at| kept.allows(&namespace, at)).count();
            }
            assert_eq!(allowed, in_all);
        }
    }
}
