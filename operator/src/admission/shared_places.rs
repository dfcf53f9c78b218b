//! Places that all callers share. A caller decides how long it keeps a place, so callers with few places go before
//! callers with many.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_daemon::places::Source;
use tokio::sync::oneshot;

use super::asker::Asker;

/// A bounded number of places. When all are taken, the next free one goes to the source that has the fewest, then to its
/// namespace that has the fewest, and then to the one that has waited longest.
#[derive(Clone, Debug)]
pub(crate) struct Fair(Arc<Shared>);

/// A place; free when it is dropped.
#[derive(Debug)]
pub(crate) struct FairPlace {
    places: Fair,
    asker: Asker,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    of_each: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    by_asker: HashMap<Asker, usize>,
    by_source: HashMap<Option<Source>, usize>,
    /// In the order in which they came.
    waiting: Vec<(Asker, oneshot::Sender<FairPlace>)>,
}

impl Fair {
    /// So many places in all, and so many of them at most for one namespace of a source.
    pub(crate) fn new(limit: usize, of_each: usize) -> Self {
        Self(Arc::new(Shared {
            limit,
            of_each,
            state: Mutex::default(),
        }))
    }

    /// Waits until there is a place. The caller bounds its time.
    pub(crate) async fn take(&self, asker: &Asker) -> FairPlace {
        loop {
            let (sender, receiver) = oneshot::channel();
            {
                let mut state = self.state();
                state.waiting.retain(|(_, sender)| !sender.is_closed());
                state.waiting.push((asker.clone(), sender));
            }
            self.give();
            // The sender is dropped with its place only: never while we wait.
            if let Ok(place) = receiver.await {
                return place;
            }
        }
    }

    /// Gives free places to those that wait.
    fn give(&self) {
        loop {
            let next = self.state().next(self.0.limit, self.0.of_each);
            let Some((asker, sender)) = next else {
                return;
            };
            let place = FairPlace {
                places: self.clone(),
                asker,
            };
            // One that has gone meanwhile gives it back, which must not be under the lock.
            drop(sender.send(place));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a place for the next that waits.
    fn next(&mut self, limit: usize, of_each: usize) -> Option<(Asker, oneshot::Sender<FairPlace>)> {
        if self.taken >= limit {
            return None;
        }
        self.waiting.retain(|(_, sender)| !sender.is_closed());
        let of = |asker: &Asker| self.by_asker.get(asker).copied().unwrap_or_default();
        let of_source = |asker: &Asker| self.by_source.get(&asker.source()).copied().unwrap_or_default();
        let may = self.waiting.iter().enumerate();
        let may = may.filter(|(_, (asker, _))| of(asker) < of_each);
        let (at, _) = may.min_by_key(|(_, (asker, _))| (of_source(asker), of(asker)))?;
        let (asker, sender) = self.waiting.remove(at);
        self.taken += 1;
        *self.by_asker.entry(asker.clone()).or_default() += 1;
        *self.by_source.entry(asker.source()).or_default() += 1;
        Some((asker, sender))
    }

    fn free(&mut self, asker: &Asker) {
        self.taken -= 1;
        take_one(&mut self.by_asker, asker);
        take_one(&mut self.by_source, &asker.source());
    }
}

fn take_one<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Drop for FairPlace {
    fn drop(&mut self) {
        self.places.state().free(&self.asker);
        self.places.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn asker(namespace: &str, source: Option<u8>) -> Asker {
        Asker::new(namespace, source.map(|last| Source::of([10, 0, 0, last].into())))
    }

    #[test]
    fn a_namespace_without_a_place_gets_the_next_one_before_a_namespace_that_has_some() {
        let places = Fair::new(4, 4);
        let (hostile, honest) = (asker("hostile", None), asker("honest", None));
        let mut taken: Vec<_> = (0..4)
            .map(|_| places.take(&hostile).now_or_never().unwrap())
            .collect();
        let mut more: Vec<_> = (0..10).map(|_| Box::pin(places.take(&hostile))).collect();
        assert!(more.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut next = Box::pin(places.take(&honest));
        assert!(next.as_mut().now_or_never().is_none());
        taken.pop();
        let place = next.as_mut().now_or_never().expect("it has the fewest");
        assert!(more.iter_mut().all(|one| one.now_or_never().is_none()));
        drop(place);
        let given: Vec<_> = more.iter_mut().filter_map(|one| one.now_or_never()).collect();
        assert_eq!(given.len(), 1);
    }

    #[test]
    fn a_namespace_has_its_share_and_no_more_and_a_forger_is_one_source_whatever_it_names() {
        let places = Fair::new(8, 2);
        let hostile = asker("hostile", None);
        let taken: Vec<_> = (0..2)
            .map(|_| places.take(&hostile).now_or_never().unwrap())
            .collect();
        assert!(places.take(&hostile).now_or_never().is_none());
        assert!(places.take(&asker("honest", None)).now_or_never().is_some());
        drop(taken);
        let named: Vec<_> = (0..20).map(|at| asker(&format!("n{at}"), Some(1))).collect();
        let forged: Vec<_> = named
            .iter()
            .filter_map(|one| places.take(one).now_or_never())
            .collect();
        assert_eq!(forged.len(), 8);
        let mut more: Vec<_> = named.iter().map(|one| Box::pin(places.take(one))).collect();
        assert!(more.iter_mut().all(|one| one.now_or_never().is_none()));
        let server = asker("honest", Some(2));
        let mut next = Box::pin(places.take(&server));
        assert!(next.as_mut().now_or_never().is_none());
        drop(forged);
        assert!(next.as_mut().now_or_never().is_some());
    }

    #[test]
    fn a_caller_that_gives_up_leaves_nothing_behind() {
        let places = Fair::new(1, 1);
        let one = asker("one", None);
        let taken = places.take(&one).now_or_never().unwrap();
        let mut waiting = Box::pin(places.take(&one));
        assert!(waiting.as_mut().now_or_never().is_none());
        // It was given a place that it has not looked at.
        drop(taken);
        drop(waiting);
        assert!(places.take(&one).now_or_never().is_some());
        let state = places.state();
        assert_eq!(
            (state.taken, state.by_asker.len(), state.by_source.len()),
            (0, 0, 0)
        );
    }
}
