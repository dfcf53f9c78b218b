//! How often the children of lock roots change. A client that creates and deletes the same node again and again
//! leaves no children to count, and still keeps the operator busy.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lock_key::LockKey;
use crate::zookeeper::children::CHANGES_OF_NAMESPACE;

/// The changes since [`Churn::begin_anew`].
#[derive(Debug, Default)]
pub(super) struct Churn {
    namespaces: HashMap<Arc<str>, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// Changes of the locks that are followed, by their names, and all together.
    followed: HashMap<Arc<str>, usize>,
    all: usize,
    /// Changes of locks that are not followed.
    ignored: HashMap<Arc<str>, usize>,
}

impl Churn {
    /// Counts a change below a lock root that is followed. If its namespace has had too many changes, returns the
    /// lock with the most of them, which has to be given up.
    pub(super) fn note(&mut self, key: &LockKey) -> Option<LockKey> {
        let namespace = self.of(key);
        *namespace.followed.entry(Arc::clone(&key.name)).or_default() += 1;
        namespace.all += 1;
        if namespace.all <= CHANGES_OF_NAMESPACE {
            return None;
        }
        let (worst, _) = namespace.followed.iter().max_by_key(|(_, count)| **count)?;
        let worst = Arc::clone(worst);
        namespace.all -= namespace.followed.remove(&worst).unwrap_or(0);
        Some(LockKey::new(Arc::clone(&key.namespace), worst))
    }

    /// Counts a change below a lock root that was given up.
    pub(super) fn note_ignored(&mut self, key: &LockKey) {
        let count = self.of(key).ignored.entry(Arc::clone(&key.name)).or_default();
        *count += 1;
    }

    /// Whether a lock that was given up may be followed again. It has to be calm for a while: otherwise it would be
    /// given up and followed in turns.
    pub(super) fn is_calm(&self, key: &LockKey) -> bool {
        let namespace = self.namespaces.get(&key.namespace);
        let count = namespace.and_then(|namespace| namespace.ignored.get(&key.name));
        count.is_none_or(|count| *count <= CHANGES_OF_NAMESPACE / 2)
    }

    pub(super) fn begin_anew(&mut self) {
        self.namespaces.clear();
    }

    fn of(&mut self, key: &LockKey) -> &mut Namespace {
        self.namespaces.entry(Arc::clone(&key.namespace)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_namespace_that_changes_most_is_given_up_and_looked_at_when_it_is_calm_again() {
        let [busy, quiet, other] = [("a", "busy"), ("a", "quiet"), ("b", "busy")]
            .map(|(namespace, name)| LockKey::new(namespace, name));
        let mut churn = Churn::default();
        for _ in 0..CHANGES_OF_NAMESPACE - 1 {
            assert_eq!(churn.note(&busy), None);
            assert_eq!(churn.note(&other), None, "a namespace of its own");
        }
        assert_eq!(churn.note(&quiet), None);
        // The one that changes too often, not the one whose change was one too many.
        assert_eq!(churn.note(&quiet), Some(busy.clone()));
        assert_eq!(churn.note(&quiet), None);
        for _ in 0..=CHANGES_OF_NAMESPACE / 2 {
            assert!(churn.is_calm(&busy));
            churn.note_ignored(&busy);
        }
        assert!(!churn.is_calm(&busy) && churn.is_calm(&quiet));
        churn.begin_anew();
        assert!(churn.is_calm(&busy));
    }

    #[test]
    fn changes_that_are_spread_over_many_locks_are_bounded_as_well() {
        let mut churn = Churn::default();
        let keys: Vec<_> = (0..100).map(|at| LockKey::new("a", format!("{at}"))).collect();
        let given_up = (0..2 * CHANGES_OF_NAMESPACE).filter_map(|at| churn.note(&keys[at % 100]));
        assert!(
            given_up.count() >= 40,
            "as many as the changes beyond the bound need"
        );
    }
}
