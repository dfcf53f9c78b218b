//! What the operator knows of the queues: plain data, no I/O.

use std::collections::{HashMap, HashSet};

use lockkeeper_lock::{ContenderData, FencingToken, Mode, Participant, arrange};

use crate::layout::LockKey;

/// A child of a lock root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Name below the lock root.
    pub name: String,
    /// Its fencing token; 0 where the operator may not read the node.
    pub token: FencingToken,
    /// What it says of itself.
    pub data: ContenderData,
    /// What it says of itself where that is no document of ours: Curator writes an IP address.
    pub foreign: Option<String>,
}

/// Longest foreign word that is shown, in bytes: an address, not somebody's picture.
const LONGEST_WORD: usize = 64;

/// One lock as it stands in ZooKeeper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Whether the lock root is there.
    pub exists: bool,
    contenders: Vec<Contender>,
}

/// All locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    queues: HashMap<LockKey, Queue>,
}

// === impl Contender ===

impl Contender {
    /// A contender as it was read.
    pub fn read(name: String, token: FencingToken, data: &[u8]) -> Self {
        let parsed = ContenderData::parse(data);
        let word = || std::str::from_utf8(data).ok().map(str::trim);
        let is_word = |word: &&str| {
            !word.is_empty()
                && word.len() <= LONGEST_WORD
                && word.chars().all(|c| c.is_alphanumeric() || ".:-_".contains(c))
        };
        Self {
            name,
            token,
            foreign: if parsed.state.is_empty() {
                word().filter(is_word).map(str::to_owned)
            } else {
                None
            },
            data: parsed,
        }
    }
}

// === impl Queue ===

impl Queue {
    /// The contenders in no order.
    pub fn contenders(&self) -> &[Contender] {
        &self.contenders
    }

    /// The contenders in the order of the queue, and who of them has nobody before it.
    pub fn participants(&self, mode: Mode) -> Vec<Participant> {
        let nodes = self.contenders.iter().cloned();
        arrange(nodes.map(|node| (node.name, node.token, node.data)), mode)
    }
}

// === impl Picture ===

impl Picture {
    /// One lock; `None` when nothing of it is there.
    pub fn queue(&self, key: &LockKey) -> Option<&Queue> {
        self.queues.get(key)
    }

    /// All locks.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.queues.keys()
    }

    /// How many contenders there are in all.
    pub fn contenders(&self) -> usize {
        self.queues.values().map(|queue| queue.contenders.len()).sum()
    }

    /// The lock root is there, or not. True when that is news.
    pub fn set_exists(&mut self, key: &LockKey, exists: bool) -> bool {
        if !exists {
            let Some(queue) = self.queues.get_mut(key) else {
                return false;
            };
            let was = std::mem::replace(&mut queue.exists, false);
            self.forget_if_empty(key);
            return was;
        }
        let queue = self.queues.entry(key.clone()).or_default();
        !std::mem::replace(&mut queue.exists, true)
    }

    /// A contender is there with these data. True when that is news.
    pub fn put(&mut self, key: &LockKey, contender: Contender) -> bool {
        let queue = self.queues.entry(key.clone()).or_default();
        match queue
            .contenders
            .iter_mut()
            .find(|old| old.name == contender.name)
        {
            Some(old) if *old == contender => false,
            Some(old) => {
                *old = contender;
                true
            }
            None => {
                queue.contenders.push(contender);
                true
            }
        }
    }

    /// A contender is gone. True when that is news.
    pub fn remove(&mut self, key: &LockKey, name: &str) -> bool {
        let Some(queue) = self.queues.get_mut(key) else {
            return false;
        };
        let Some(index) = queue.contenders.iter().position(|old| old.name == name) else {
            return false;
        };
        queue.contenders.swap_remove(index);
        self.forget_if_empty(key);
        true
    }

    /// The locks in which this picture and an older one differ.
    pub fn differences(&self, old: &Self) -> HashSet<LockKey> {
        let differs = |key: &&LockKey| match (self.queue(key), old.queue(key)) {
            (Some(new), Some(old)) => !new.says_the_same(old),
            (None, None) => false,
            _ => true,
        };
        let all = self.keys().chain(old.keys());
        all.filter(differs).cloned().collect()
    }

    fn forget_if_empty(&mut self, key: &LockKey) {
        if self
            .queues
            .get(key)
            .is_some_and(|queue| !queue.exists && queue.contenders.is_empty())
        {
            self.queues.remove(key);
        }
    }
}

impl Queue {
    fn says_the_same(&self, other: &Self) -> bool {
        self.exists == other.exists
            && self.contenders.len() == other.contenders.len()
            && self
                .contenders
                .iter()
                .all(|contender| other.contenders.contains(contender))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(sequence: u32, state: &str) -> Contender {
        Contender {
            name: format!("_c_{sequence}-lock-{sequence:010}"),
            token: FencingToken(i64::from(sequence)),
            data: ContenderData {
                state: state.into(),
                ..ContenderData::default()
            },
            foreign: None,
        }
    }

    #[test]
    fn the_queue_is_in_the_order_of_sequence_numbers_whatever_was_read_first() {
        let key = LockKey::new("a", "b");
        let mut picture = Picture::default();
        for sequence in [7, 3, 5] {
            assert!(picture.put(&key, contender(sequence, "waiting")));
        }
        let order: Vec<_> = picture
            .queue(&key)
            .unwrap()
            .participants(Mode::Exclusive)
            .into_iter()
            .map(|participant| (participant.token.0, participant.is_holder))
            .collect();
        assert_eq!(order, [(3, true), (5, false), (7, false)]);
    }

    #[test]
    fn a_client_of_another_kind_is_shown_as_what_it_says_and_nothing_long_or_odd_is() {
        let foreign = |data: &[u8]| Contender::read("c".into(), FencingToken(1), data).foreign;
        assert_eq!(foreign(b"10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(foreign(br#"{"v":1,"state":"held"}"#), None);
        for data in [&b""[..], b"<b>", &[b'a'; 65], b"\xff"] {
            assert_eq!(foreign(data), None);
        }
    }

    #[test]
    fn what_was_known_already_is_no_news() {
        let key = LockKey::new("a", "b");
        let mut picture = Picture::default();
        assert!(picture.set_exists(&key, true));
        assert!(!picture.set_exists(&key, true));
        assert!(picture.put(&key, contender(1, "waiting")));
        assert!(!picture.put(&key, contender(1, "waiting")));
        assert!(picture.put(&key, contender(1, "held")));
        assert!(picture.remove(&key, &contender(1, "").name));
        assert!(!picture.remove(&key, &contender(1, "").name));
        assert!(picture.set_exists(&key, false));
        assert_eq!(picture, Picture::default());
    }

    #[test]
    fn only_locks_that_differ_are_reported_after_everything_was_read_again() {
        let keys = ["same", "changed", "gone", "new"].map(|name| LockKey::new("a", name));
        let (mut old, mut new) = (Picture::default(), Picture::default());
        for key in &keys[..3] {
            old.put(key, contender(1, "waiting"));
            old.put(key, contender(2, "waiting"));
        }
        new.put(&keys[0], contender(2, "waiting"));
        new.put(&keys[0], contender(1, "waiting"));
        new.put(&keys[1], contender(1, "held"));
        new.put(&keys[1], contender(2, "waiting"));
        new.put(&keys[3], contender(1, "waiting"));
        let differing = new.differences(&old);
        assert_eq!(differing, HashSet::from_iter(keys[1..].iter().cloned()));
    }
}
