//! Deaths that are known: contenders of machines that an administrator has powered off.
//!
//! The operator deletes a contender whose machine is off, so that the next one need not wait for the end of its session.
//! `docs/safety.md` has the argument. [`berths`] remembers which contender is on which machine, [`machine`] says what
//! counts of a node, and this module reads nodes. All replicas do that, so that the next leader knows what the last one
//! knew. None of this exists unless the administrator has said that the taint is a proof
//! (`--trust-out-of-service-taint`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use lockkeeper_lock::Participant;

use crate::changes::Changes;
use crate::kubernetes::names::is_subdomain;
use crate::kubernetes::objects::PAGE;
use crate::kubernetes::pods::PodFacts;
use crate::lock_key::LockKey;
use crate::zookeeper::queues::picture::Queue;

mod berths;
pub mod machine;

use berths::Berths;
pub use berths::Suspect;
use machine::Machine;

/// How long the API server may take to describe a node.
const PATIENCE: Duration = Duration::from_secs(5);

/// Until a node that could not be read is read again.
const PAUSE: Duration = Duration::from_secs(2);

/// What is known of machines and of the contenders on them.
#[derive(Debug)]
pub struct Fencing {
    known: Mutex<Known>,
    /// Locks that have to be looked at.
    changes: Arc<Changes>,
    /// Nodes that have to be read, each for a lock with a new contender there.
    asked: Changes<(Arc<str>, LockKey)>,
}

#[derive(Debug, Default)]
struct Known {
    berths: Berths,
    /// Nodes with the taint, as they were seen last. Where it counts, they are read again.
    suspects: HashSet<Arc<str>>,
}

/// Reads nodes.
#[derive(Clone)]
pub struct Nodes(Api<Node>);

// === impl Nodes ===

impl Nodes {
    /// Reads by this client.
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
    }

    /// A node as it is now: the API server asks its store. `None` if there is none of this name.
    async fn read(&self, name: &str) -> Result<Option<Machine>, String> {
        match tokio::time::timeout(PATIENCE, self.0.get_opt(name)).await {
            Ok(Ok(node)) => Ok(node.as_ref().map(Machine::of)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the API server gave no answer within {PATIENCE:?}")),
        }
    }
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nodes")
    }
}

// === impl Fencing ===

impl Fencing {
    /// Knows nothing yet. Announces locks that have to be looked at.
    pub fn new(changes: Arc<Changes>) -> Self {
        Self {
            known: Mutex::default(),
            changes,
            asked: Changes::default(),
        }
    }

    /// How many contenders would be dead if their nodes were out of service from now on.
    pub fn vouched(&self) -> usize {
        self.known().berths.vouched()
    }

    /// Takes in a queue, as it was just seen, and the pods behind its lock.
    pub fn note(&self, key: &LockKey, queue: &Queue, pods: &BTreeMap<String, PodFacts>) {
        let nodes = self.known().berths.note(key, queue, pods);
        self.asked
            .announce(nodes.into_iter().map(|node| (node, key.clone())));
    }

    /// Forgets all locks but these.
    pub fn keep(&self, is_there: impl Fn(&LockKey) -> bool) {
        self.known().berths.keep(is_there);
    }

    /// Forgets a lock that is gone.
    pub fn forget(&self, key: &LockKey) {
        self.known().berths.forget(key);
    }

    /// The contenders of a lock on nodes with the taint, each with its node as it is now; and whether a node could not be
    /// read, so that it has to be tried again.
    pub async fn suspects(
        &self,
        nodes: &Nodes,
        key: &LockKey,
        participants: &[Participant],
    ) -> (Vec<Suspect>, bool) {
        let mut suspects = {
            let known = self.known();
            let is_suspect = |node: &str| known.suspects.contains(node);
            known.berths.suspects(key, participants, is_suspect)
        };
        let (mut read, mut is_late) = (HashMap::new(), false);
        for suspect in &mut suspects {
            if !read.contains_key(&suspect.node) {
                let now = nodes.read(&suspect.node).await.unwrap_or_else(|error| {
                    tracing::warn!(%error, node = suspect.node, lock = %key, "Failed to read a node; trying again");
                    is_late = true;
                    None
                });
                read.insert(suspect.node.clone(), now);
            }
            suspect.now = read[&suspect.node].clone();
        }
        (suspects, is_late)
    }

    /// Reads the nodes of new contenders; to be run as a task. Never ends.
    pub async fn vouch(&self, nodes: Nodes) {
        loop {
            let mut by_node = HashMap::<_, Vec<_>>::new();
            for (node, key) in self.asked.take().await {
                by_node.entry(node).or_default().push(key);
            }
            let mut failed = Vec::new();
            for (node, keys) in by_node {
                // Those that are in their queues before the API server is asked.
                let asked = self.known().berths.unvouched(&node, &keys);
                if asked.is_empty() {
                    continue;
                }
                match nodes.read(&node).await {
                    Ok(Some(machine)) => {
                        let mut known = self.known();
                        known.berths.vouch(&asked, &machine);
                        if machine.is_out_of_service {
                            known.suspects.insert(node);
                        } else if known.suspects.contains(&node) {
                            // The taint came in between.
                            self.changes.announce(keys);
                        }
                    }
                    // No contender is on a machine that Kubernetes does not know.
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, %node, "Failed to read a node; trying again");
                        failed.extend(keys.into_iter().map(|key| (Arc::clone(&node), key)));
                    }
                }
            }
            if !failed.is_empty() {
                tokio::time::sleep(PAUSE).await;
                self.asked.announce(failed);
            }
        }
    }

    /// Follows the nodes; to be run as a task. Never ends.
    pub async fn follow(&self, client: Client) {
        let config = watcher::Config::default().page_size(PAGE);
        let mut events = watcher(Api::<Node>::all(client), config)
            .default_backoff()
            .boxed();
        let mut first = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => first = HashSet::new(),
                Ok(Event::InitApply(node)) => {
                    let name = node.name_any();
                    if Machine::of(&node).is_out_of_service && is_subdomain(&name) {
                        first.insert(name);
                    }
                }
                Ok(Event::InitDone) => {
                    let listed = std::mem::take(&mut first);
                    let before: Vec<_> = self.known().suspects.iter().cloned().collect();
                    let gone = before.iter().filter(|name| !listed.contains(&***name));
                    gone.for_each(|name| self.see(name, false));
                    listed.iter().for_each(|name| self.see(name, true));
                }
                Ok(Event::Apply(node)) => self.see(&node.name_any(), Machine::of(&node).is_out_of_service),
                Ok(Event::Delete(node)) => self.see(&node.name_any(), false),
                Err(error) => tracing::warn!(%error, "Failed to watch nodes; trying again"),
            }
        }
    }

    /// A node has the taint, or has it not.
    fn see(&self, node: &str, is_out_of_service: bool) {
        let mut known = self.known();
        if is_out_of_service {
            known.suspects.insert(node.into());
            // Also if the taint is no news: whether the kubelet is silent may be.
            self.changes.announce(known.berths.locks_on(node));
        } else if known.suspects.remove(node) {
            // Contenders that came under the taint are vouched for now.
            let node: Arc<str> = node.into();
            let locks = known.berths.locks_on(&node).into_iter();
            self.asked.announce(locks.map(|key| (Arc::clone(&node), key)));
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
