//! Creates a `DistributedLock` with the defaults for each lock that pods name and that does not exist.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::runtime::reflector::{ObjectRef, Store};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_daemon::sentence::few;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::controller::error::Error;
use crate::controller::followed_locks;
use crate::controller::writer::Writers;
use crate::kubernetes::names::is_label;
use crate::kubernetes::pods::Pods;
use crate::lock_key::LockKey;

/// Time between two looks at all locks that pods name: an object may be deleted while pods still name the lock. New
/// pods are handled by events.
const LOOK: Duration = Duration::from_secs(30);

/// How long pods may name a lock that does not exist before the operator creates it. A user who applies a workload and its
/// lock together sends one after the other, and Helm sends kinds that it does not know last.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How many locks of one namespace are made in one round.
const OF_NAMESPACE: usize = 4;

/// The number of locks of a namespace from which on the operator creates no more for its pods. A client that may label
/// running pods can have locks of any name created, and only users delete them.
const ENOUGH: usize = 1_000;

/// How many requests of one round are under way at once.
const AT_ONCE: usize = 8;

/// The least time between two rounds, however much changes.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time between two attempts to make a lock.
const LONGEST_BACKOFF: Duration = Duration::from_secs(600);

/// Makes the locks that pods name and that do not exist.
#[derive(Debug)]
pub(crate) struct MissingLocks {
    pods: Arc<Pods>,
    writers: Arc<Writers>,
    /// The `tickTime` of the operator's ensemble, in which these locks are.
    tick_time: Duration,
    undescribed: Undescribed,
    news: Notify,
}

/// Locks that pods name and that do not exist.
#[derive(Debug, Default)]
struct Undescribed {
    waiting: Mutex<HashMap<LockKey, Waiting>>,
}

/// When a lock may be made.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    due: Instant,
    tries: u32,
}

impl Undescribed {
    /// Returns which of the `missing` locks are to be made at `now`, and how long the next one has to wait. Those come
    /// first that have waited longest, a few of each namespace. Locks that are not missing any more are forgotten.
    fn due(&self, missing: &[LockKey], now: Instant) -> (Vec<LockKey>, Duration) {
        // Creating a lock of an invalid name would fail; any label value can be put on a running pod.
        let missing: HashSet<_> = missing.iter().filter(|key| is_label(&key.name)).collect();
        let mut waiting = self.waiting();
        waiting.retain(|key, _| missing.contains(key));
        let first = Waiting {
            due: now + PATIENCE,
            tries: 0,
        };
        let mut all: Vec<_> = missing
            .into_iter()
            .map(|key| (waiting.entry(key.clone()).or_insert(first).due, key))
            .collect();
        all.sort();
        let (mut due, mut next) = (Vec::new(), LOOK);
        let mut of_namespace = HashMap::<_, usize>::new();
        for (at, key) in all {
            let count = of_namespace.entry(&key.namespace).or_default();
            if at > now {
                next = next.min(at - now);
            } else if *count < OF_NAMESPACE {
                *count += 1;
                due.push(key.clone());
            } else {
                next = PAUSE;
            }
        }
        (due, next)
    }

    /// Notes that a lock was tried. If it is still missing, it waits twice as long as before.
    fn tried(&self, key: &LockKey, now: Instant) {
        if let Some(waiting) = self.waiting().get_mut(key) {
            let backoff = PATIENCE.saturating_mul(2_u32.saturating_pow(waiting.tries));
            waiting.tries += 1;
            waiting.due = now + backoff.min(LONGEST_BACKOFF);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<LockKey, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl MissingLocks ===

impl MissingLocks {
    /// Prepares to make the locks that these pods name.
    pub(crate) fn new(pods: Arc<Pods>, writers: Arc<Writers>, tick_time: Duration) -> Self {
        Self {
            pods,
            writers,
            tick_time,
            undescribed: Undescribed::default(),
            news: Notify::new(),
        }
    }

    /// Makes sure that all locks that pods name exist; to be run as a task. Ends when it is dropped.
    pub(crate) async fn follow(&self, store: Store<DistributedLock>, mut is_ready: watch::Receiver<bool>) {
        if is_ready.wait_for(|is_ready| *is_ready).await.is_err() {
            return;
        }
        let mut were_full = BTreeSet::new();
        loop {
            let mut missing = self.pods.locks();
            missing.retain(|key| store.get(&object(key)).is_none());
            // A replica that leads later begins to count then.
            if !self.writers.is_leading() {
                missing.clear();
            }
            let full = leave_full(&mut missing, || {
                store.state().into_iter().map(|lock| followed_locks::key(&lock))
            });
            let new: Vec<_> = full.difference(&were_full).map(|name| &**name).collect();
            if !new.is_empty() {
                tracing::warn!(
                    namespaces = few(&new),
                    "Made no DistributedLocks for pods that name them: {ENOUGH} are there"
                );
            }
            were_full = full;
            let (due, next) = self.undescribed.due(&missing, Instant::now());
            self.make_all(due).await;
            let news = async {
                tokio::time::sleep(PAUSE).await;
                self.news.notified().await;
            };
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = news => {}
            }
        }
    }

    /// Lets a lock that pods name be checked, if it does not exist.
    pub(crate) fn notice(&self, store: &Store<DistributedLock>, key: &LockKey) {
        if store.get(&object(key)).is_none() {
            self.news.notify_one();
        }
    }

    /// Makes the objects of locks that pods name.
    async fn make_all(&self, keys: Vec<LockKey>) {
        let tries = keys.into_iter().map(|key| self.attempt(key));
        let done: Vec<_> = stream::iter(tries).buffer_unordered(AT_ONCE).collect().await;
        let mut made = Vec::new();
        let mut failed = Vec::new();
        for (key, result) in &done {
            match result {
                Ok(true) => made.push(key),
                Ok(false) => {}
                Err(error) => failed.push((key, error)),
            }
        }
        if !made.is_empty() {
            tracing::info!(
                locks = few(&made),
                "Made DistributedLocks with the defaults for pods that name them"
            );
        }
        if let Some((_, error)) = failed.first() {
            let locks: Vec<_> = failed.iter().map(|(key, _)| *key).collect();
            tracing::warn!(locks = few(&locks), %error, "Failed to make DistributedLocks; trying again ever more rarely");
        }
    }

    async fn attempt(&self, key: LockKey) -> (LockKey, Result<bool, Error>) {
        let made = self.make(&key).await;
        self.undescribed.tried(&key, Instant::now());
        (key, made)
    }

    /// Makes the object of a lock; false when it is there already, and was not seen yet.
    async fn make(&self, key: &LockKey) -> Result<bool, Error> {
        let defaults = DistributedLockSpec::for_tick(self.tick_time);
        self.writers.writer()?.create_lock(key, defaults).await
    }
}

/// Removes locks whose namespaces have enough locks already, and returns these namespaces. `there` are all locks.
fn leave_full<I: Iterator<Item = LockKey>>(
    missing: &mut Vec<LockKey>,
    there: impl FnOnce() -> I,
) -> BTreeSet<Arc<str>> {
    if missing.is_empty() {
        return BTreeSet::new();
    }
    let mut counts = HashMap::<Arc<str>, usize>::new();
    there().for_each(|key| *counts.entry(key.namespace).or_default() += 1);
    let is_full = |key: &LockKey| counts.get(&key.namespace).is_some_and(|count| *count >= ENOUGH);
    let left = missing.extract_if(.., |key| is_full(key));
    left.map(|key| key.namespace).collect()
}

/// The object of a lock, for the store.
pub(crate) fn object(key: &LockKey) -> ObjectRef<DistributedLock> {
    ObjectRef::new(&key.name).within(&key.namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> LockKey {
        LockKey::new(namespace, name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_comes_soon_after_its_pods_is_not_made_in_its_place() {
        let undescribed = Undescribed::default();
        let (report, other) = (key("shop", "report"), key("shop", "other"));
        let due = |missing: &[LockKey]| undescribed.due(missing, Instant::now());
        assert_eq!(due(std::slice::from_ref(&report)), (vec![], PATIENCE));
        tokio::time::advance(PATIENCE / 2).await;
        let both = [report.clone(), other.clone()];
        assert_eq!(due(&both), (vec![], PATIENCE / 2));
        tokio::time::advance(PATIENCE / 2).await;
        assert_eq!(due(&both), (vec![report.clone()], PATIENCE / 2));
        // It was there meanwhile, and is deleted again.
        due(std::slice::from_ref(&other));
        assert_eq!(due(&both), (vec![], PATIENCE / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn locks_that_cannot_be_made_are_tried_ever_more_rarely_and_hold_up_none_of_other_namespaces() {
        let undescribed = Undescribed::default();
        let mut missing: Vec<_> = (0..100).map(|at| key("evil", &format!("lock-{at}"))).collect();
        let begin = Instant::now();
        undescribed.due(&missing, begin);
        tokio::time::advance(PATIENCE).await;
        missing.push(key("shop", "report"));
        undescribed.due(&missing, Instant::now());
        tokio::time::advance(PATIENCE).await;
        let (due, next) = undescribed.due(&missing, Instant::now());
        assert_eq!(
            due.iter().filter(|key| &*key.namespace == "evil").count(),
            OF_NAMESPACE
        );
        assert!(due.contains(&missing[100]), "{due:?}");
        assert_eq!(next, PAUSE);
        // One whose quota is exhausted for a day.
        let one = [key("shop", "report")];
        let mut tries = 0;
        while begin.elapsed() < Duration::from_secs(24 * 3600) {
            let (due, next) = undescribed.due(&one, Instant::now());
            for key in &due {
                tries += 1;
                undescribed.tried(key, Instant::now());
            }
            tokio::time::advance(next.max(PAUSE)).await;
        }
        assert!((100..200).contains(&tries), "{tries} tries in a day");
    }

    #[test]
    fn a_namespace_with_enough_locks_gets_no_more_for_its_pods_and_others_get_theirs() {
        let keys = |namespace, count| (0..count).map(move |at| key(namespace, &format!("lock-{at}")));
        let there = || keys("evil", ENOUGH).chain(keys("shop", ENOUGH - 1));
        let mut missing = vec![
            key("evil", "a"),
            key("shop", "a"),
            key("evil", "b"),
            key("new", "a"),
        ];
        let full = leave_full(&mut missing, there);
        assert_eq!(missing, [key("shop", "a"), key("new", "a")]);
        assert_eq!(full.into_iter().collect::<Vec<_>>(), [Arc::from("evil")]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_name_of_a_lock_is_never_made() {
        let undescribed = Undescribed::default();
        let missing = ["UPPER", "a.b", "a_b", "-a", ""].map(|name| key("evil", name));
        assert_eq!(undescribed.due(&missing, Instant::now()), (vec![], LOOK));
        tokio::time::advance(PATIENCE).await;
        assert_eq!(undescribed.due(&missing, Instant::now()), (vec![], LOOK));
    }
}
