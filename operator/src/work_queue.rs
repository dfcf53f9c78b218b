//! What changed: each lock or namespace is in the set once, however often it changed.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::lock_key::LockKey;

/// A set of keys that have to be looked at. There is one taker.
#[derive(Debug)]
pub struct WorkQueue<K = LockKey> {
    keys: Mutex<HashSet<K>>,
    notify: Notify,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            keys: Mutex::default(),
            notify: Notify::default(),
        }
    }
}

impl<K: Eq + Hash> WorkQueue<K> {
    pub(crate) fn announce(&self, keys: impl IntoIterator<Item = K>) {
        self.keys().extend(keys);
        self.notify.notify_one();
    }

    /// Waits until there are some, and takes them all.
    pub async fn take(&self) -> Vec<K> {
        loop {
            // Made before looking: an announcement after the look wakes it.
            let notified = self.notify.notified();
            let keys = std::mem::take(&mut *self.keys());
            if !keys.is_empty() {
                return keys.into_iter().collect();
            }
            notified.await;
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashSet<K>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_that_changed_often_is_looked_at_once_and_none_is_forgotten() {
        let changes = WorkQueue::default();
        let [a, b] = ["a", "b"].map(|name| LockKey::new("ns", name));
        changes.announce([a.clone()]);
        changes.announce([b.clone(), a.clone()]);
        let mut taken = changes.take().await;
        taken.sort();
        assert_eq!(taken, [a.clone(), b]);
        let (late, ()) = tokio::join!(changes.take(), async { changes.announce([a.clone()]) });
        assert_eq!(late, [a]);
    }
}
