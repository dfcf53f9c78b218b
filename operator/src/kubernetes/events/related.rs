//! How many events may name what they are about besides their lock.
//!
//! The client library sums events up: for six minutes, one with the same reason about the same objects raises only the
//! count of the first one, whose sentence stays. So an event about a holder names the holder's pod as its related object,
//! and events about two pods are two. But contenders say which pods they are, and each new name is one more object in the
//! store of the API server, and one more in memory here. So there is a bound. Beyond it events name their lock only, and
//! are summed up.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use tokio::time::Instant;

/// For how long an event is summed up with the ones before it (`CACHE_TTL` of the crate `kube-runtime`).
const SUMMED_UP: Duration = Duration::from_secs(360);

/// Names of one namespace within that time: some hundred locks that change hands at once.
const OF_NAMESPACE: usize = 500;

/// Names in all. An event of 2 kB is kept of each: 8 MB.
const IN_ALL: usize = 4_000;

/// The names in events of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Related {
    hasher: RandomState,
    /// By namespace, hashes of the names and of what they are named for, and when they were used last.
    used: HashMap<String, HashMap<u64, Instant>>,
}

// === impl Related ===

impl Related {
    /// Whether an event in a namespace may name this. What was named before may be named again.
    pub(super) fn allows(&mut self, namespace: &str, what: impl Hash) -> bool {
        let (what, now) = (self.hasher.hash_one(what), Instant::now());
        self.used.retain(|_, names| {
            names.retain(|_, used| now.duration_since(*used) < SUMMED_UP);
            !names.is_empty()
        });
        let in_all: usize = self.used.values().map(HashMap::len).sum();
        let names = self.used.get(namespace);
        let is_known = names.is_some_and(|names| names.contains_key(&what));
        let has_room = names.map_or(0, HashMap::len) < OF_NAMESPACE && in_all < IN_ALL;
        let is_allowed = is_known || has_room;
        if is_allowed {
            let names = self.used.entry(namespace.to_owned()).or_default();
            names.insert(what, now);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_makes_up_pods_makes_some_hundred_events_and_uses_up_nobodys_share() {
        let mut related = Related::default();
        let made_up = (0..10_000).filter(|at| related.allows("evil", ("LockLost", "report", at)));
        assert_eq!(made_up.count(), OF_NAMESPACE);
        assert!(related.allows("evil", ("LockLost", "report", &7)), "it is known");
        assert!(related.allows("shop", ("LockLost", "report", &10_000)));
        tokio::time::advance(SUMMED_UP).await;
        assert!(related.allows("evil", ("LockLost", "report", &10_000)));
        assert_eq!(related.used.values().map(HashMap::len).sum::<usize>(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn many_tenants_together_make_up_no_more_than_fits_into_memory() {
        let mut related = Related::default();
        let mut allowed = 0;
        for tenant in 0..2 * IN_ALL / OF_NAMESPACE {
            let namespace = format!("evil-{tenant}");
            let made_up = (0..OF_NAMESPACE).filter(|at| related.allows(&namespace, at));
            allowed += made_up.count();
        }
        assert_eq!(allowed, IN_ALL);
    }
}
