//! How many ensembles are followed at once: each takes memory that the operator's pod has to have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for sessions, some of which one namespace may take.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    count: usize,
    of_namespaces: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _in_all: OwnedSemaphorePermit,
    _of_namespace: OwnedSemaphorePermit,
}

impl Places {
    /// So many. One namespace gets half of them at most, so that it cannot keep all others out.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(count)),
            count,
            of_namespaces: Mutex::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Takes a place, and waits in a queue for it.
    pub(crate) async fn take(&self, namespace: &str) -> Place {
        let of_namespace = acquire(self.of(namespace)).await;
        Place {
            _of_namespace: of_namespace,
            _in_all: acquire(Arc::clone(&self.all)).await,
        }
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut known = self.of_namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, one| one.strong_count() > 0);
        let one = known.get(namespace).and_then(Weak::upgrade);
        let one = one.unwrap_or_else(|| Arc::new(Semaphore::new(self.count.div_ceil(2))));
        known.insert(namespace.to_owned(), Arc::downgrade(&one));
        one
    }
}

async fn acquire(places: Arc<Semaphore>) -> OwnedSemaphorePermit {
    places.acquire_owned().await.expect("it is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_namespace_takes_half_of_the_places_at_most_and_gives_them_back() {
        let places = Places::new(4);
        let take = |namespace| places.take(namespace).now_or_never();
        let [a, b] = ["greedy", "greedy"].map(|namespace| take(namespace).expect("there is a place"));
        assert!(take("greedy").is_none());
        let _others = ["shop", "bank"].map(|namespace| take(namespace).expect("there is a place"));
        assert!(take("late").is_none());
        drop(a);
        assert!(take("late").is_some());
        drop(b);
        assert!(take("greedy").is_some());
    }
}
