//! How many reconciliations run at once, in all and for one namespace. A tenant decides what the reconciliation of its
//! locks has to read, and may make it slow. So one namespace cannot take all places while others need some.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lock_key::LockKey;
use crate::work_queue::WorkQueue;

/// How many reconciliations run at once. This bounds the requests under way to the API server.
pub(crate) const IN_ALL: u16 = 64;

/// How many reconciliations of one namespace run at once while [`MANY`] are under way in all.
const OF_NAMESPACE: usize = 8;

/// The number of reconciliations from which on each namespace has its bound. While fewer are under way, a namespace has
/// as many as it likes.
const MANY: usize = IN_ALL as usize / 2;

/// The reconciliations under way, and the locks that wait for one of their namespace to end.
#[derive(Debug)]
pub(crate) struct Turns {
    under_way: Mutex<UnderWay>,
    changes: Arc<WorkQueue>,
}

#[derive(Debug, Default)]
struct UnderWay {
    count: usize,
    of_namespace: HashMap<Arc<str>, Here>,
}

#[derive(Debug, Default)]
struct Here {
    count: usize,
    waiting: HashSet<LockKey>,
}

/// The right to reconcile a lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    namespace: Arc<str>,
}

impl Turns {
    /// Returns turns of which none is taken. Locks that have waited are announced to `changes`.
    pub(crate) fn new(changes: Arc<WorkQueue>) -> Self {
        Self {
            under_way: Mutex::default(),
            changes,
        }
    }

    /// Takes a turn for a lock; `None` if its namespace has enough. Then the lock is announced later.
    pub(crate) fn take(&self, key: &LockKey) -> Option<Turn<'_>> {
        let mut under_way = self.under_way();
        let is_much = under_way.count >= MANY;
        let here = under_way
            .of_namespace
            .entry(Arc::clone(&key.namespace))
            .or_default();
        if is_much && here.count >= OF_NAMESPACE {
            here.waiting.insert(key.clone());
            return None;
        }
        here.count += 1;
        under_way.count += 1;
        Some(Turn {
            turns: self,
            namespace: Arc::clone(&key.namespace),
        })
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut under_way = self.turns.under_way();
        under_way.count -= 1;
        let Some(here) = under_way.of_namespace.get_mut(&self.namespace) else {
            return;
        };
        here.count -= 1;
        let next = here.waiting.iter().next().cloned();
        let next = next.and_then(|key| here.waiting.take(&key));
        // An announced lock may be gone by now, and then takes no turn whose end would announce the next: so the last
        // turn announces all.
        let rest = (here.count == 0).then(|| std::mem::take(&mut here.waiting));
        if here.count == 0 {
            under_way.of_namespace.remove(&self.namespace);
        }
        drop(under_way);
        self.turns
            .changes
            .announce(next.into_iter().chain(rest.into_iter().flatten()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::FutureExt;

    fn key(namespace: &str, at: usize) -> LockKey {
        LockKey::new(namespace, format!("lock-{at}"))
    }

    fn turns() -> Turns {
        Turns::new(Arc::default())
    }

    fn announced(turns: &Turns) -> Vec<LockKey> {
        turns.changes.take().now_or_never().unwrap_or_default()
    }

    #[test]
    fn a_namespace_alone_leaves_half_of_the_places_to_others_and_each_of_these_takes_a_few() {
        let turns = turns();
        let take = |namespace: &str| -> Vec<_> {
            let keys = (0..1000).map(|at| key(namespace, at));
            keys.filter_map(|key| turns.take(&key)).collect()
        };
        let evil = take("evil");
        assert_eq!(evil.len(), MANY);
        let others: Vec<_> = ["a", "b", "c"].map(take).into();
        assert!(others.iter().all(|turns| turns.len() == OF_NAMESPACE));
        assert!(evil.len() + others.iter().map(Vec::len).sum::<usize>() < IN_ALL.into());
    }

    #[test]
    fn a_lock_that_waits_is_announced_when_one_of_its_namespace_ends_and_none_is_forgotten() {
        let turns = turns();
        let mut under_way: Vec<_> = (0..MANY)
            .map(|at| turns.take(&key("shop", at)).unwrap())
            .collect();
        let waiting: HashSet<_> = (MANY..MANY + 50).map(|at| key("shop", at)).collect();
        assert!(waiting.iter().all(|key| turns.take(key).is_none()));
        assert_eq!(announced(&turns), []);
        drop(under_way.pop());
        let mut told: HashSet<_> = announced(&turns).into_iter().collect();
        assert_eq!(told.len(), 1, "as many as have room");
        // The announced locks are gone, and take no turn.
        drop(under_way);
        told.extend(announced(&turns));
        assert_eq!(told, waiting);
        assert!(turns.under_way().of_namespace.is_empty());
    }
}
