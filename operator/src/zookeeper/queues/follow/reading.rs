//! What is to be read, and the reads that are under way.

use std::collections::HashSet;

use super::{Follow, LISTS, READS};
use crate::lock_key::LockKey;
use crate::zookeeper::children::{CHILDREN, CHILDREN_OF_NAMESPACE};
use crate::zookeeper::paths::Place;
use crate::zookeeper::queues::picture::{Contender, Excess};
use crate::zookeeper::queues::view::Shared;

impl Follow {
    /// Contenders of a namespace that are still to be read.
    pub(super) fn waiting(&self, namespace: &str) -> usize {
        let first = self.first.as_ref();
        let first = first.map_or(0, |first| first.backlog.contenders_of(namespace));
        self.backlog.contenders_of(namespace) + first
    }

    /// Reads what was found in a list.
    pub(super) fn list(&mut self, place: Place) {
        match &mut self.first {
            Some(first) => first.backlog.insert(place),
            None => self.backlog.insert(place),
        }
    }

    /// Lists children again of which events may not tell: from 3.8.4 and 3.9.2 on, a server tells of a node only those who
    /// may read it (ZOOKEEPER-4799).
    pub(super) fn list_again(&mut self, shared: &Shared) {
        let mut listed = std::mem::take(&mut self.listed_again);
        let keys = self.look_at(shared, |picture| listed.next(picture.doubtful(), LISTS));
        self.listed_again = listed;
        for key in keys {
            self.read(Place::Lock(key), shared);
        }
    }

    /// Of the children in a new list, those that were not read, and how many children are new; the others are followed by
    /// their events. Those go of which nothing but the name was known, and which are not in the list.
    pub(super) fn unread_of(
        &mut self,
        key: &LockKey,
        mut names: Vec<String>,
        long: &[String],
        shared: &Shared,
    ) -> (Vec<String>, usize) {
        let known = self
            .look_at(shared, |picture| picture.queue(key).cloned())
            .unwrap_or_default();
        let listed: HashSet<&str> = names.iter().chain(long).map(String::as_str).collect();
        for contender in known.contenders().filter(|contender| contender.is_unread()) {
            if !listed.contains(&*contender.name) {
                self.edit(key, shared, |picture| picture.remove(key, &contender.name));
            }
        }
        let new = listed
            .iter()
            .filter(|name| known.contender(name).is_none())
            .count();
        names.retain(|name| known.contender(name).is_none_or(Contender::is_unread));
        (names, new)
    }

    /// Reads what has changed.
    pub(super) fn read(&mut self, place: Place, shared: &Shared) {
        if self.under_way.read_again(&place) {
            return;
        }
        if let Place::Contender(key, _) = &place {
            let of_lock = self.backlog.of_lock(key);
            let excess = if of_lock >= CHILDREN {
                Some(Excess::Children(of_lock))
            } else if self.backlog.contenders_of(&key.namespace) >= CHILDREN_OF_NAMESPACE {
                Some(Excess::Namespace)
            } else {
                None
            };
            if let Some(excess) = excess {
                return self.give_up(key, excess, None, shared);
            }
        }
        self.backlog.insert(place);
    }

    pub(super) fn start_reads(&mut self) {
        while self.reads.len() < READS {
            let backlog = match &mut self.first {
                Some(first) => &mut first.backlog,
                None => &mut self.backlog,
            };
            let Some(place) = backlog.pop() else { return };
            // It was listed while an older answer is under way.
            if self.under_way.replace(&place) {
                continue;
            }
            self.under_way.begin(place.clone());
            let (reader, path) = (self.reader.clone(), self.layout.path(&place));
            let before = match &place {
                Place::Lock(key) => self.given_up.get(key).copied(),
                _ => None,
            };
            self.reads.push(Box::pin(async move {
                let answer = reader.read(&place, &path, before).await;
                (place, answer)
            }));
        }
    }
}
