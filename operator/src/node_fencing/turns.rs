//! In which order nodes are read for new contenders: namespaces take turns. Pure.
//!
//! A tenant may create pods that name any number of nodes, also of such as do not exist.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::lock_key::LockKey;

/// Nodes that have to be read, each with the locks for whose contenders that is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    locks: HashMap<Arc<str>, HashSet<LockKey>>,
    /// By namespace, the nodes that it asked for. Those that were read for another namespace meanwhile are in
    /// [`Turns::locks`] no more.
    nodes: HashMap<Arc<str>, VecDeque<Arc<str>>>,
    /// Those that have some, in the order of their turns.
    namespaces: VecDeque<Arc<str>>,
}

// === impl Turns ===

impl Turns {
    /// Adds nodes, each for a lock.
    pub(super) fn add(&mut self, asked: impl IntoIterator<Item = (Arc<str>, LockKey)>) {
        for (node, key) in asked {
            let namespace = Arc::clone(&key.namespace);
            let locks = self.locks.entry(Arc::clone(&node)).or_default();
            let is_asked = locks.iter().any(|lock| lock.namespace == namespace);
            locks.insert(key);
            if is_asked {
                continue;
            }
            let nodes = self.nodes.entry(Arc::clone(&namespace)).or_default();
            if nodes.is_empty() {
                self.namespaces.push_back(namespace);
            }
            nodes.push_back(node);
        }
    }

    /// The next node, with all locks that it is to be read for.
    pub(super) fn next(&mut self) -> Option<(Arc<str>, Vec<LockKey>)> {
        while let Some(namespace) = self.namespaces.pop_front() {
            let Some(nodes) = self.nodes.get_mut(&namespace) else {
                continue;
            };
            let node = nodes.pop_front();
            if nodes.is_empty() {
                self.nodes.remove(&namespace);
            } else {
                self.namespaces.push_back(namespace);
            }
            let Some(node) = node else { continue };
            if let Some(locks) = self.locks.remove(&node) {
                return Some((node, locks.into_iter().collect()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(namespace: &str, node: &str) -> (Arc<str>, LockKey) {
        (node.into(), LockKey::new(namespace, "report"))
    }

    /// The nodes in the order in which they are read, with the namespaces that gain from it.
    fn order(turns: &mut Turns) -> Vec<String> {
        let next = std::iter::from_fn(|| turns.next());
        let line = |(node, locks): (Arc<str>, Vec<LockKey>)| {
            let mut namespaces: Vec<_> = locks.iter().map(|lock| &*lock.namespace).collect();
            namespaces.sort_unstable();
            format!("{node} for {}", namespaces.join(" and "))
        };
        next.map(line).collect()
    }

    #[test]
    fn a_tenant_with_many_nodes_delays_another_one_by_one_node() {
        let mut turns = Turns::default();
        turns.add((0..1_000).map(|at| asked("evil", &format!("made-up-{at}"))));
        turns.add([asked("shop", "n1"), asked("shop", "n2")]);
        let order = order(&mut turns);
        assert_eq!(order.len(), 1_002);
        assert_eq!(
            order[..5],
            [
                "made-up-0 for evil",
                "n1 for shop",
                "made-up-1 for evil",
                "n2 for shop",
                "made-up-2 for evil"
            ]
        );
    }

    #[test]
    fn a_node_is_read_once_for_all_that_wait_for_it_and_again_for_those_that_come_later() {
        let mut turns = Turns::default();
        turns.add([
            asked("shop", "n1"),
            asked("bank", "n1"),
            asked("bank", "n1"),
            asked("bank", "n2"),
        ]);
        assert_eq!(order(&mut turns), ["n1 for bank and shop", "n2 for bank"]);
        turns.add([asked("bank", "n1")]);
        assert_eq!(order(&mut turns), ["n1 for bank"]);
        let Turns {
            locks,
            nodes,
            namespaces,
        } = turns;
        assert!(locks.is_empty() && nodes.is_empty() && namespaces.is_empty());
    }
}
