//! Which locks changed: each once, however often it did.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::layout::LockKey;

/// A set of locks that somebody has to look at. There is one taker.
#[derive(Debug, Default)]
pub struct Changes {
    keys: Mutex<HashSet<LockKey>>,
    notify: Notify,
}

impl Changes {
    /// Adds locks.
    pub fn announce(&self, keys: impl IntoIterator<Item = LockKey>) {
        self.keys().extend(keys);
        self.notify.notify_one();
    }

    /// Waits until there are some, and takes them all.
    pub async fn take(&self) -> Vec<LockKey> {
        loop {
            // Made before looking: what is announced behind the look wakes it.
            let notified = self.notify.notified();
            let keys = std::mem::take(&mut *self.keys());
            if !keys.is_empty() {
                return keys.into_iter().collect();
            }
            notified.await;
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashSet<LockKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_that_changed_often_is_looked_at_once_and_none_is_forgotten() {
        let changes = Changes::default();
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
