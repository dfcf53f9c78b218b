//! Limits how many locks are followed, in each namespace and in total. Tenants decide how many locks they create, and
//! each replica keeps all followed locks in memory.
//!
//! A followed lock stays followed; free places go to the oldest of the others. The age is the API server's creation
//! timestamp, so the choice is much the same after a restart. A lock that is left out has no nodes and no status:
//! pods that name it wait.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use std::vec;

use futures_util::{Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::runtime::watcher::{Error, Event};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_daemon::sentence::few;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use crate::lock_key::LockKey;

pub(crate) const BOUNDS: Bounds = Bounds {
    // As many as `make bench-operator` measures in one namespace.
    of_namespace: 10_000,
    // A lock of the largest size that names an ensemble of its own takes some 11 KiB of the 256 MiB that the chart
    // gives the operator (operator/tests/strangers/many.rs).
    in_all: 12_000,
};

/// Time from a deletion to a new list if locks were left out: places may be free.
const AGAIN: Duration = Duration::from_secs(60);

/// Counts of locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) of_namespace: usize,
    pub(crate) in_all: usize,
}

/// The oldest locks of a list that are not followed yet, as many as there are free places.
#[derive(Default)]
struct Oldest {
    by_age: BTreeMap<Age, DistributedLock>,
    of_namespace: HashMap<Arc<str>, BTreeSet<Age>>,
    without: Without,
    /// How many were left out.
    count: usize,
}

type Age = (Option<Time>, LockKey);

/// The namespaces in which locks were left out: new locks there are left out, too.
#[derive(Default)]
struct Without {
    namespaces: BTreeSet<Arc<str>>,
    everywhere: bool,
}

#[derive(Default)]
struct Followed {
    /// By the number of the last list that had it.
    keys: HashMap<LockKey, u64>,
    of_namespace: HashMap<Arc<str>, usize>,
}

struct Census<W, S> {
    watch: W,
    events: S,
    bounds: Bounds,
    left_out: Gauge<u64, AtomicU64>,
    /// The number of the list that was begun last.
    number: u64,
    list: Oldest,
    passing: Option<Passing>,
    /// Whether the first whole list was passed on.
    has_begun: bool,
    followed: Followed,
    without: Without,
    /// When all locks are listed again.
    again: Option<Instant>,
}

/// The changes of a list that are still to be passed on.
struct Passing {
    gone: vec::IntoIter<LockKey>,
    new: btree_map::IntoValues<Age, DistributedLock>,
}

/// The events of `watch` about followed locks. Starts `watch` again when places may be free for other locks.
/// `left_out` is the number of locks that the last list left out, and at least 1 if a lock was left out since.
///
/// The first list is passed on as a list. Of later lists only the changes are passed on, so that two lists are never
/// in memory at once.
pub(crate) fn census<S>(
    watch: impl Fn() -> S + Send + 'static,
    bounds: Bounds,
    left_out: Gauge<u64, AtomicU64>,
) -> impl Stream<Item = Result<Event<DistributedLock>, Error>> + Send
where
    S: Stream<Item = Result<Event<DistributedLock>, Error>> + Unpin + Send + 'static,
{
    let events = watch();
    let census = Census {
        watch,
        events,
        bounds,
        left_out,
        number: 0,
        list: Oldest::default(),
        passing: None,
        has_begun: false,
        followed: Followed::default(),
        without: Without::default(),
        again: None,
    };
    stream::unfold(census, async |mut census| {
        let event = census.next().await?;
        Some((event, census))
    })
}

// === impl Oldest ===

impl Oldest {
    /// Adds a lock. `free` are the free places in its namespace, and in total.
    fn put(&mut self, lock: DistributedLock, free: Bounds) {
        let age = (lock.metadata.creation_timestamp.clone(), key(&lock));
        let namespace = Arc::clone(&age.1.namespace);
        self.by_age.insert(age.clone(), lock);
        let of_namespace = self.of_namespace.entry(Arc::clone(&namespace)).or_default();
        of_namespace.insert(age);
        if of_namespace.len() > free.of_namespace {
            self.count += 1;
            if let Some(youngest) = of_namespace.pop_last() {
                self.by_age.remove(&youngest);
            }
            self.without.namespaces.insert(namespace);
        } else if self.by_age.len() > free.in_all {
            self.count += 1;
            if let Some((youngest, _)) = self.by_age.pop_last()
                && let Some(of_namespace) = self.of_namespace.get_mut(&youngest.1.namespace)
            {
                of_namespace.remove(&youngest);
            }
            self.without.everywhere = true;
        }
    }
}

// === impl Without ===

impl Without {
    fn is_any(&self) -> bool {
        self.everywhere || !self.namespaces.is_empty()
    }
}

impl std::fmt::Display for Without {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.everywhere {
            return f.write_str("any");
        }
        f.write_str(&few(&self.namespaces))
    }
}

// === impl Followed ===

impl Followed {
    fn put(&mut self, key: LockKey, number: u64) {
        *self.of_namespace.entry(Arc::clone(&key.namespace)).or_default() += 1;
        self.keys.insert(key, number);
    }

    fn remove(&mut self, key: &LockKey) -> bool {
        let was_there = self.keys.remove(key).is_some();
        if let Some(count) = self.of_namespace.get_mut(&key.namespace).filter(|_| was_there) {
            *count -= 1;
            if *count == 0 {
                self.of_namespace.remove(&key.namespace);
            }
        }
        was_there
    }

    /// The free places in a namespace, and in total.
    fn free(&self, namespace: &str, bounds: Bounds) -> Bounds {
        let of_namespace = self.of_namespace.get(namespace).copied().unwrap_or_default();
        Bounds {
            of_namespace: bounds.of_namespace.saturating_sub(of_namespace),
            in_all: bounds.in_all.saturating_sub(self.keys.len()),
        }
    }
}

// === impl Census ===

impl<W, S> Census<W, S>
where
    W: Fn() -> S,
    S: Stream<Item = Result<Event<DistributedLock>, Error>> + Unpin,
{
    async fn next(&mut self) -> Option<Result<Event<DistributedLock>, Error>> {
        loop {
            if let Some(passing) = &mut self.passing {
                if let Some(key) = passing.gone.next() {
                    return Some(Ok(Event::Delete(gone(&key))));
                }
                match (passing.new.next(), self.has_begun) {
                    (Some(lock), true) => return Some(Ok(Event::Apply(lock))),
                    (Some(lock), false) => return Some(Ok(Event::InitApply(lock))),
                    (None, _) => self.passing = None,
                }
                if !self.has_begun {
                    self.has_begun = true;
                    return Some(Ok(Event::InitDone));
                }
            }
            let again = async {
                match self.again {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                event = self.events.next() => event?,
                () = again => {
                    self.again = None;
                    self.events = (self.watch)();
                    continue;
                }
            };
            match event {
                Ok(Event::Init) => {
                    self.number += 1;
                    self.list = Oldest::default();
                }
                Ok(Event::InitApply(lock)) => {
                    let key = key(&lock);
                    if let Some(number) = self.followed.keys.get_mut(&key) {
                        *number = self.number;
                        return Some(Ok(Event::Apply(lock)));
                    }
                    let free = self.followed.free(&key.namespace, self.bounds);
                    self.list.put(lock, free);
                }
                Ok(Event::InitDone) => {
                    self.listed();
                    if !self.has_begun {
                        return Some(Ok(Event::Init));
                    }
                }
                Ok(Event::Apply(lock)) if self.takes(&lock) => return Some(Ok(Event::Apply(lock))),
                Ok(Event::Delete(lock)) if self.loses(&lock) => return Some(Ok(Event::Delete(lock))),
                Ok(Event::Apply(_) | Event::Delete(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn listed(&mut self) {
        let Oldest {
            by_age,
            without,
            count,
            ..
        } = std::mem::take(&mut self.list);
        let is_gone = |number: &u64| *number != self.number;
        let gone = self.followed.keys.iter().filter(|(_, number)| is_gone(number));
        let gone: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
        for key in &gone {
            self.followed.remove(key);
        }
        for (_, key) in by_age.keys() {
            self.followed.put(key.clone(), self.number);
        }
        // Locks that are gone have left places for others, which this list has left out.
        let is_free = count > 0 && !gone.is_empty();
        self.again = is_free.then(|| Instant::now() + AGAIN);
        self.passing = Some(Passing {
            gone: gone.into_iter(),
            new: by_age.into_values(),
        });
        self.without = without;
        self.left_out.set(count as u64);
        if count > 0 {
            self.say(count);
        }
    }

    /// Whether a lock is followed from now on. If older locks were left out, a free place is theirs.
    fn takes(&mut self, lock: &DistributedLock) -> bool {
        let key = key(lock);
        if self.followed.keys.contains_key(&key) {
            return true;
        }
        if self.without.everywhere || self.without.namespaces.contains(&key.namespace) {
            return false;
        }
        let free = self.followed.free(&key.namespace, self.bounds);
        if free.of_namespace == 0 {
            self.without.namespaces.insert(key.namespace);
        } else if free.in_all == 0 {
            self.without.everywhere = true;
        } else {
            self.followed.put(key, self.number);
            return true;
        }
        self.left_out.set(self.left_out.get().max(1));
        self.say(1);
        false
    }

    /// Whether it was followed.
    fn loses(&mut self, lock: &DistributedLock) -> bool {
        if self.without.is_any() {
            self.again.get_or_insert_with(|| Instant::now() + AGAIN);
        }
        self.followed.remove(&key(lock))
    }

    fn say(&self, count: usize) {
        tracing::warn!(
            count,
            namespaces = %self.without,
            "Left out DistributedLocks: the operator follows {} of a namespace, and {} in total",
            self.bounds.of_namespace,
            self.bounds.in_all
        );
    }
}

/// The object for the deletion event: it only identifies the lock.
fn gone(key: &LockKey) -> DistributedLock {
    let mut lock = DistributedLock::new(&key.name, DistributedLockSpec::default());
    lock.metadata.namespace = Some(key.namespace.to_string());
    lock
}

pub(crate) fn key(lock: &DistributedLock) -> LockKey {
    LockKey::new(lock.namespace().unwrap_or_default(), lock.name_any())
}

#[cfg(test)]
mod tests;
