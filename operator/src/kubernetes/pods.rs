//! The pods behind locks, followed and kept in memory.
//!
//! Of each pod only the little that the operator needs is kept: thirty thousand whole pods would take hundreds of
//! megabytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures_util::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use lockkeeper_crds::keys;
use tokio::sync::watch;

use crate::kubernetes::objects::{PAGE, PodPart};
use crate::lock_key::LockKey;
use crate::work_queue::WorkQueue;

mod facts;

pub use facts::Role;
pub(crate) use facts::{Owner, PodFacts};

/// All pods with the label `lockkeeper.io/lock`.
#[derive(Debug)]
pub(crate) struct Pods {
    index: RwLock<Index>,
    changes: WorkQueue,
    is_ready: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Index {
    by_lock: HashMap<LockKey, BTreeMap<String, PodFacts>>,
    /// Namespace and name of each pod, for when its label changes.
    locks: HashMap<(String, String), LockKey>,
}

// === impl Pods ===

impl Pods {
    pub(crate) fn new() -> Self {
        Self {
            index: RwLock::default(),
            changes: WorkQueue::default(),
            is_ready: watch::Sender::new(false),
        }
    }

    /// The pods that stand behind a lock, by name.
    pub(crate) fn of(&self, key: &LockKey) -> BTreeMap<String, PodFacts> {
        self.read().by_lock.get(key).cloned().unwrap_or_default()
    }

    /// All locks that some pod names.
    pub(crate) fn locks(&self) -> Vec<LockKey> {
        self.read().by_lock.keys().cloned().collect()
    }

    /// Waits for changes of pods, and takes the locks that they stand behind.
    pub(crate) async fn changes(&self) -> Vec<LockKey> {
        self.changes.take().await
    }

    /// True once all pods are known.
    pub(crate) fn ready(&self) -> watch::Receiver<bool> {
        self.is_ready.subscribe()
    }

    /// A role label was written: so that it is not written twice before the watch says so. Nothing else
    /// of the answer counts, for the watch may be further by then.
    pub(crate) fn set_role(&self, key: &LockKey, pod: &str, uid: &str, role: Role) {
        let mut index = self.write();
        let facts = index.by_lock.get_mut(key).and_then(|pods| pods.get_mut(pod));
        if let Some(facts) = facts.filter(|facts| facts.uid == uid) {
            facts.role = Some(role);
        }
    }

    /// Follows the API server; to be run as a task. Ends with its watch: never.
    pub(crate) async fn follow(&self, client: Client) {
        let api: Api<PodPart> = Api::all(client);
        let config = watcher::Config::default().labels(keys::LOCK).page_size(PAGE);
        let mut events = watcher(api, config).default_backoff().boxed();
        let mut first = Index::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => first = Index::default(),
                Ok(Event::InitApply(pod)) => {
                    if let Some((key, name, facts)) = read(&pod) {
                        first.put(key, name, facts);
                    }
                }
                Ok(Event::InitDone) => self.replace(std::mem::take(&mut first)),
                Ok(Event::Apply(pod)) => {
                    if let Some((key, name, facts)) = read(&pod) {
                        self.changes.announce(self.write().put(key, name, facts));
                    }
                }
                Ok(Event::Delete(pod)) => {
                    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
                    self.changes.announce(self.write().remove(&namespace, &name));
                }
                Err(error) => tracing::warn!(%error, "Failed to watch pods; trying again"),
            }
        }
    }

    fn replace(&self, index: Index) {
        let mut old = self.write();
        let differs = |key: &&LockKey| index.by_lock.get(*key) != old.by_lock.get(*key);
        let keys = index.by_lock.keys().chain(old.by_lock.keys());
        let changed: Vec<_> = keys.filter(differs).cloned().collect();
        *old = index;
        drop(old);
        self.changes.announce(changed);
        self.is_ready.send_replace(true);
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Pods {
    fn default() -> Self {
        Self::new()
    }
}

fn read(pod: &PodPart) -> Option<(LockKey, String, PodFacts)> {
    let lock = pod.labels().get(keys::LOCK)?;
    let key = LockKey::new(pod.namespace()?, lock.as_str());
    Some((key, pod.name_any(), PodFacts::of(pod)))
}

// === impl Index ===

impl Index {
    /// The locks that are to be looked at.
    fn put(&mut self, key: LockKey, name: String, facts: PodFacts) -> Vec<LockKey> {
        let pod = (key.namespace.to_string(), name.clone());
        let mut changed = Vec::new();
        if self.locks.get(&pod).is_some_and(|old| *old != key) {
            changed.extend(self.remove(&pod.0, &pod.1));
        }
        let old = self
            .by_lock
            .entry(key.clone())
            .or_default()
            .insert(name, facts.clone());
        if old.as_ref() != Some(&facts) {
            changed.push(key.clone());
        }
        self.locks.insert(pod, key);
        changed
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<LockKey> {
        let key = self.locks.remove(&(namespace.to_owned(), name.to_owned()))?;
        if let Some(pods) = self.by_lock.get_mut(&key) {
            pods.remove(name);
            if pods.is_empty() {
                self.by_lock.remove(&key);
            }
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::facts::tests::pod;
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_pod_its_owner_revision_and_role_are_known() {
        let (key, name, facts) = read(&pod(true, json!({"running": {}}))).unwrap();
        assert_eq!((key, name.as_str()), (LockKey::new("shop", "report"), "report-1"));
        assert_eq!(facts.owner, Some(Owner::Deployment("report".into())));
        assert_eq!(facts.revision.as_deref(), Some("6c9d"));
        assert_eq!(facts.role, Some(Role::Active));
        assert!(facts.ensemble.is_none() && !facts.is_over);
        let mut over = pod(true, json!({"terminated": {"exitCode": 0}}));
        over.annotations_mut()
            .insert("lockkeeper.io/ensemble".into(), "6f1d".into());
        over.status.as_mut().unwrap().phase = Some("Succeeded".into());
        let (_, _, facts) = read(&over).unwrap();
        assert_eq!(facts.ensemble.as_deref(), Some("6f1d"));
        assert!(facts.is_over);
    }

    #[test]
    fn a_pod_that_goes_to_another_lock_is_news_for_both() {
        let mut index = Index::default();
        let facts = PodFacts::of(&pod(true, json!({"running": {}})));
        let [a, b] = ["a", "b"].map(|name| LockKey::new("shop", name));
        let news = |index: &mut Index, key: &LockKey| index.put(key.clone(), "p".into(), facts.clone()).len();
        assert_eq!(news(&mut index, &a), 1);
        assert_eq!(news(&mut index, &a), 0, "it was known");
        assert_eq!(index.put(b.clone(), "p".into(), facts), [a, b.clone()]);
        assert_eq!(index.remove("shop", "p"), Some(b));
        assert!(index.by_lock.is_empty() && index.locks.is_empty());
    }
}
