//! What is still to be read: each place once, namespaces in turns.
//!
//! The clients that may create contenders in a namespace decide how often contenders appear, change and disappear. So
//! a place that changes a hundred times is queued once, a place that is gone is removed, and a namespace with many
//! places delays only itself.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::lock_key::LockKey;
use crate::zookeeper::paths::Place;

/// Places to read.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    namespaces: Ring<Arc<str>, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// By the names of their locks; an empty one is the namespace itself.
    locks: Ring<Arc<str>, Lock>,
    contenders: usize,
}

/// The names of contenders; `None` is the lock root itself.
type Lock = Ring<Option<String>, ()>;

/// A map that yields its keys in turns, round robin.
#[derive(Debug)]
struct Ring<K, V> {
    map: BTreeMap<K, V>,
    last: Option<K>,
}

// === impl Backlog ===

impl Backlog {
    /// Adds a place, unless it is queued already.
    pub(super) fn insert(&mut self, place: Place) {
        let (namespace, lock, contender) = parts(place);
        let is_contender = contender.is_some();
        let namespace = self.namespaces.map.entry(namespace).or_default();
        let lock = namespace.locks.map.entry(lock).or_default();
        if lock.map.insert(contender, ()).is_none() && is_contender {
            namespace.contenders += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<Place> {
        let namespace = self.namespaces.turn()?;
        let lock = self.namespaces.map.get_mut(&namespace)?.locks.turn()?;
        let contender = {
            let locks = &mut self.namespaces.map.get_mut(&namespace)?.locks;
            locks.map.get_mut(&lock)?.turn()?
        };
        let place = place(namespace, lock, contender);
        self.remove(&place);
        Some(place)
    }

    /// Removes a place that need not be read any more.
    pub(super) fn remove(&mut self, place: &Place) {
        let (name, lock_name, contender) = parts(place.clone());
        let Some(namespace) = self.namespaces.map.get_mut(&name) else {
            return;
        };
        let Some(lock) = namespace.locks.map.get_mut(&lock_name) else {
            return;
        };
        if lock.map.remove(&contender).is_some() && contender.is_some() {
            namespace.contenders -= 1;
        }
        if lock.map.is_empty() {
            namespace.locks.map.remove(&lock_name);
        }
        if namespace.locks.map.is_empty() {
            self.namespaces.map.remove(&name);
        }
    }

    pub(super) fn remove_lock(&mut self, key: &LockKey) {
        let Some(namespace) = self.namespaces.map.get_mut(&key.namespace) else {
            return;
        };
        if let Some(lock) = namespace.locks.map.remove(&key.name) {
            namespace.contenders -= lock.map.keys().flatten().count();
        }
        if namespace.locks.map.is_empty() {
            self.namespaces.map.remove(&key.namespace);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.namespaces.map.is_empty()
    }

    /// How many places of a lock wait.
    pub(super) fn of_lock(&self, key: &LockKey) -> usize {
        let namespace = self.namespaces.map.get(&key.namespace);
        let lock = namespace.and_then(|namespace| namespace.locks.map.get(&key.name));
        lock.map_or(0, |lock| lock.map.len())
    }

    /// How many contenders of a namespace wait.
    pub(super) fn contenders_of(&self, namespace: &str) -> usize {
        let namespace = self.namespaces.map.get(namespace);
        namespace.map_or(0, |namespace| namespace.contenders)
    }
}

/// Neither a namespace nor a lock has an empty name.
fn parts(place: Place) -> (Arc<str>, Arc<str>, Option<String>) {
    match place {
        Place::Locks => (Arc::default(), Arc::default(), None),
        Place::Namespace(namespace) => (namespace, Arc::default(), None),
        Place::Lock(key) => (key.namespace, key.name, None),
        Place::Contender(key, name) => (key.namespace, key.name, Some(name)),
    }
}

fn place(namespace: Arc<str>, name: Arc<str>, contender: Option<String>) -> Place {
    match contender {
        Some(contender) => Place::Contender(LockKey { namespace, name }, contender),
        None if namespace.is_empty() => Place::Locks,
        None if name.is_empty() => Place::Namespace(namespace),
        None => Place::Lock(LockKey { namespace, name }),
    }
}

// === impl Ring ===

impl<K, V> Default for Ring<K, V> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            last: None,
        }
    }
}

impl<K: Ord + Clone, V> Ring<K, V> {
    /// The key that is next.
    fn turn(&mut self) -> Option<K> {
        let behind = match &self.last {
            Some(last) => (Bound::Excluded(last), Bound::Unbounded),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let next = self.map.range::<K, _>(behind).next();
        let (next, _) = next.or_else(|| self.map.first_key_value())?;
        self.last = Some(next.clone());
        self.last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(namespace: &str, lock: &str, name: &str) -> Place {
        Place::Contender(LockKey::new(namespace, lock), name.to_owned())
    }

    fn all(backlog: &mut Backlog) -> Vec<Place> {
        std::iter::from_fn(|| backlog.pop()).collect()
    }

    #[test]
    fn every_kind_of_place_comes_back_as_it_was() {
        let key = LockKey::new("shop", "report");
        let mut places = [
            Place::Locks,
            Place::Namespace("shop".into()),
            Place::Lock(key.clone()),
            Place::Contender(key, "_c_x-lock-0000000001".into()),
        ];
        for place in &places {
            let mut backlog = Backlog::default();
            backlog.insert(place.clone());
            assert_eq!(all(&mut backlog), std::slice::from_ref(place));
            assert!(backlog.is_empty());
        }
        let mut backlog = Backlog::default();
        places.iter().cloned().for_each(|place| backlog.insert(place));
        let mut popped = all(&mut backlog);
        popped.sort_by_key(|place| format!("{place:?}"));
        places.sort_by_key(|place| format!("{place:?}"));
        assert_eq!(popped, places);
    }

    #[test]
    fn what_changes_often_waits_once_and_what_is_gone_waits_no_more() {
        let mut backlog = Backlog::default();
        for _ in 0..1000 {
            backlog.insert(contender("a", "x", "stays"));
            backlog.insert(contender("a", "x", "goes"));
            backlog.remove(&contender("a", "x", "goes"));
        }
        assert_eq!(
            (
                backlog.contenders_of("a"),
                backlog.of_lock(&LockKey::new("a", "x"))
            ),
            (1, 1)
        );
        assert_eq!(all(&mut backlog), [contender("a", "x", "stays")]);
    }

    #[test]
    fn a_namespace_waits_for_no_more_than_one_place_of_each_other_one() {
        let mut backlog = Backlog::default();
        (0..1000).for_each(|at| backlog.insert(contender("a", &format!("{}", at % 7), &format!("{at}"))));
        backlog.pop();
        backlog.insert(contender("b", "y", "late"));
        let next = [backlog.pop(), backlog.pop()];
        assert!(next.contains(&Some(contender("b", "y", "late"))), "{next:?}");
    }

    #[test]
    fn what_comes_again_and_again_keeps_nothing_else_from_its_turn() {
        let mut backlog = Backlog::default();
        for (lock, name) in [("x", "a"), ("x", "z"), ("y", "b")] {
            backlog.insert(contender("a", lock, name));
        }
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.extend(backlog.pop());
            backlog.insert(contender("a", "x", "a"));
        }
        for place in [contender("a", "x", "z"), contender("a", "y", "b")] {
            assert!(seen.contains(&place), "{seen:?}");
        }
    }

    #[test]
    fn with_a_lock_all_of_it_goes_and_nothing_else() {
        let mut backlog = Backlog::default();
        let (key, other) = (LockKey::new("a", "x"), contender("a", "y", "1"));
        backlog.insert(Place::Lock(key.clone()));
        (0..5).for_each(|at| backlog.insert(contender("a", "x", &format!("{at}"))));
        backlog.insert(other.clone());
        backlog.remove_lock(&key);
        assert_eq!((backlog.contenders_of("a"), backlog.of_lock(&key)), (1, 0));
        assert_eq!(all(&mut backlog), [other]);
        assert_eq!(backlog.contenders_of("a"), 0);
    }
}
