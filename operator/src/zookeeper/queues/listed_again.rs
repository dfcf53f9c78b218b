//! Which lock roots were listed again last: namespaces take turns, so that no tenant's locks keep those of others waiting.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::lock_key::LockKey;

#[derive(Debug, Default)]
pub(super) struct ListedAgain {
    /// The namespace of the last one.
    last: Option<Arc<str>>,
    /// The last lock of each namespace.
    of_namespace: HashMap<Arc<str>, LockKey>,
}

impl ListedAgain {
    /// The next of these locks, at most so many: one of each namespace, then another one of each, and so on.
    pub(super) fn next<'a>(&mut self, locks: impl Iterator<Item = &'a LockKey>, most: usize) -> Vec<LockKey> {
        let mut of_namespace: BTreeMap<&Arc<str>, Vec<&LockKey>> = BTreeMap::new();
        for key in locks {
            of_namespace.entry(&key.namespace).or_default().push(key);
        }
        self.of_namespace
            .retain(|namespace, _| of_namespace.contains_key(namespace));
        let in_turn = of_namespace.into_iter().map(|(namespace, mut keys)| {
            let last = self.of_namespace.get(namespace);
            keys.sort_unstable_by_key(|key| (last.is_some_and(|last| *key <= last), *key));
            (namespace, keys.into_iter())
        });
        let mut in_turn: Vec<_> = in_turn.collect();
        in_turn.sort_by_key(|(namespace, _)| self.last.as_ref().is_some_and(|last| *namespace <= last));
        let mut taken: Vec<LockKey> = Vec::new();
        while taken.len() < most {
            let before = taken.len();
            let next = in_turn.iter_mut().filter_map(|(_, keys)| keys.next());
            taken.extend(next.take(most - before).cloned());
            if taken.len() == before {
                break;
            }
        }
        for key in &taken {
            self.last = Some(Arc::clone(&key.namespace));
            self.of_namespace.insert(Arc::clone(&key.namespace), key.clone());
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(namespace: &str, count: usize) -> Vec<LockKey> {
        let keys = (0..count).map(|at| LockKey::new(namespace, format!("{at:03}")));
        keys.collect()
    }

    #[test]
    fn each_lock_gets_its_turn_and_then_the_first_one_again() {
        let (locks, mut listed) = (keys("a", 3), ListedAgain::default());
        let mut next = |most| listed.next(locks.iter(), most);
        assert_eq!(next(2), locks[..2]);
        assert_eq!(next(2), [&locks[2..], &locks[..1]].concat());
        assert_eq!(next(5), [&locks[1..], &locks[..1]].concat());
    }

    #[test]
    fn a_namespace_with_thousands_of_locks_keeps_no_other_one_waiting() {
        let many = keys("a", 5_000);
        let few = keys("z", 2);
        let mut listed = ListedAgain::default();
        let mut rounds = (0..3).map(|_| listed.next(many.iter().chain(&few), 100));
        let first = rounds.next().unwrap();
        assert!(
            first.len() == 100 && few.iter().all(|key| first.contains(key)),
            "{first:?}"
        );
        let second = rounds.next().unwrap();
        assert!(
            second.contains(&many[98]) && second.contains(&few[0]),
            "{second:?}"
        );
    }

    #[test]
    fn more_namespaces_than_a_round_has_places_for_take_turns() {
        let locks: Vec<_> = (0..5).flat_map(|at| keys(&format!("n{at}"), 1)).collect();
        let mut listed = ListedAgain::default();
        let mut next = || listed.next(locks.iter(), 2);
        assert_eq!(next(), locks[..2]);
        assert_eq!(next(), locks[2..4]);
        assert_eq!(next(), [&locks[4..], &locks[..1]].concat());
    }
}
