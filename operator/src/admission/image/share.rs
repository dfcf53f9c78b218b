//! How many questions to registries one caller may have under way at once. The caller that names a registry also decides
//! how long it takes to answer, so no caller waits behind the questions of others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use lockkeeper_daemon::places::Source;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::asker::Asker;

/// Questions of one namespace at once. An image of 16 platforms has 34 of them, each of some dozen milliseconds.
const OF_NAMESPACE: usize = 4;

/// Questions of one source of reviews at once, where any client may send reviews: such a client names namespaces as it likes.
/// All pods of a cluster may come from one API server.
const OF_SOURCE: usize = 16;

/// Reviews of one namespace that wait for registries at once, a quarter of the webhooks' places: each takes one for as
/// long as a registry likes. A controller that makes many pods begins with one (`slowStartBatch` in `pkg/controller`),
/// whose answer is kept for the others; many Jobs may begin at once.
pub(crate) const WAITING: usize = 64;

/// The questions under way, by caller.
#[derive(Debug)]
pub struct Shares {
    of_asker: Group<Asker>,
    of_source: Group<Source>,
    waiting: Group<Asker>,
}

/// The share of one caller.
#[derive(Debug)]
pub struct Share {
    asker: Asker,
    own: Arc<Semaphore>,
    of_source: Option<Arc<Semaphore>>,
}

/// A place for one question; free when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _of_source: Option<OwnedSemaphorePermit>,
}

/// Semaphores by name, as long as they are in use.
#[derive(Debug)]
pub(super) struct Group<K> {
    limit: usize,
    all: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            of_asker: Group::new(OF_NAMESPACE),
            of_source: Group::new(OF_SOURCE),
            waiting: Group::new(WAITING),
        }
    }
}

impl Shares {
    pub fn of(&self, asker: &Asker) -> Share {
        Share {
            asker: asker.clone(),
            own: self.of_asker.of(asker.clone()),
            of_source: asker.source().map(|source| self.of_source.of(source)),
        }
    }

    /// Lets one more review wait, until what is returned is dropped; `None` where [`WAITING`] do.
    pub(crate) fn wait(&self, asker: &Asker) -> Option<OwnedSemaphorePermit> {
        self.waiting.of(asker.clone()).try_acquire_owned().ok()
    }
}

impl Share {
    pub(crate) fn asker(&self) -> &Asker {
        &self.asker
    }

    /// Waits until there is a place.
    pub(crate) async fn turn(&self) -> Turn {
        // They are never closed.
        let own = Arc::clone(&self.own).acquire_owned().await.ok();
        let of_source = match &self.of_source {
            Some(semaphore) => Arc::clone(semaphore).acquire_owned().await.ok(),
            None => None,
        };
        Turn {
            _own: own,
            _of_source: of_source,
        }
    }
}

impl<K: Eq + Hash> Group<K> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            all: Mutex::default(),
        }
    }

    pub(super) fn of(&self, name: K) -> Arc<Semaphore> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.get(&name).and_then(Weak::upgrade) {
            return found;
        }
        all.retain(|_, semaphore| semaphore.strong_count() > 0);
        let new = Arc::new(Semaphore::new(self.limit));
        all.insert(name, Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_namespace_that_has_all_its_turns_leaves_those_of_others_and_a_forger_has_no_more_for_many_names() {
        let shares = Shares::default();
        let turn = |namespace: &str, source: Option<u8>| {
            let source = source.map(|last| Source::of([10, 0, 0, last].into()));
            shares.of(&Asker::new(namespace, source)).turn().now_or_never()
        };
        let taken: Vec<_> = (0..OF_NAMESPACE).map(|_| turn("a", None).unwrap()).collect();
        assert!(turn("a", None).is_none() && turn("b", None).is_some());
        drop(taken);
        assert!(turn("a", None).is_some());
        let forged: Vec<_> = (0..OF_SOURCE)
            .map(|at| turn(&format!("n{at}"), Some(1)).unwrap())
            .collect();
        assert!(turn("another", Some(1)).is_none() && turn("a", Some(2)).is_some());
        drop(forged);
        assert_eq!(
            shares
                .of_asker
                .all
                .lock()
                .unwrap()
                .values()
                .filter(|one| one.strong_count() > 0)
                .count(),
            0
        );
    }
}
