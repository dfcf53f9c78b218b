//! On which machine each contender runs, as far as that is certain. Pure.
//!
//! A contender describes itself, and a tenant writes that. So the operator looks for the pod in its own picture, and
//! takes the node from there. It remembers that, because Kubernetes deletes the pods of a node that is out of service.
//!
//! A berth is *vouched for* once the API server has said, after the contender was seen in its queue, that the node was
//! not out of service. So the taint came after the contender. Without that, a contender of a machine that came back
//! with the taint still on it could be taken for one that was there before.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use lockkeeper_lock::{FencingToken, Participant};

use super::machine::Machine;
use crate::kubernetes::names::is_subdomain;
use crate::kubernetes::pods::PodFacts;
use crate::lock_key::LockKey;
use crate::zookeeper::queues::picture::{Contender, Queue};

/// The berths of all contenders that are in a queue now, and of no others.
#[derive(Debug, Default)]
pub(super) struct Berths {
    by_lock: HashMap<LockKey, HashMap<Arc<str>, Berth>>,
}

#[derive(Clone, Debug)]
struct Berth {
    token: FencingToken,
    pod: Arc<str>,
    /// When the pod was created.
    created: Timestamp,
    node: Arc<str>,
    /// UID of the node, once it is vouched for.
    machine: Option<Arc<str>>,
}

/// A berth that is not vouched for yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unvouched {
    key: LockKey,
    contender: Arc<str>,
    token: FencingToken,
}

/// A contender that was vouched for, on a node that is said to be out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// Its name below the lock root.
    pub(crate) contender: Arc<str>,
    /// Its token: another contender has another one.
    pub(crate) token: FencingToken,
    pub(crate) pod: Arc<str>,
    pub(crate) node: Arc<str>,
    /// UID of that node at a moment at which the contender was there and the taint was not.
    pub(crate) machine: Arc<str>,
    /// The node as the API server describes it now; `None` if it has none of this name, or gave no answer.
    pub(crate) now: Option<Arc<Machine>>,
}

// === impl Suspect ===

impl Suspect {
    /// Whether its machine was powered off after it was seen in the queue, by the word of the administrator.
    pub(crate) fn is_dead(&self) -> bool {
        let machine = &*self.machine;
        let is_off = |now: &Machine| now.is_out_of_service && now.is_silent && now.uid == *machine;
        self.now.as_deref().is_some_and(is_off)
    }
}

// === impl Berths ===

impl Berths {
    /// Takes in a queue and the pods behind its lock, and returns the nodes of contenders that are new.
    pub(super) fn note(
        &mut self,
        key: &LockKey,
        queue: &Queue,
        pods: &BTreeMap<String, PodFacts>,
    ) -> HashSet<Arc<str>> {
        let mut known = self.by_lock.remove(key).unwrap_or_default();
        let is_same = |name: &str, berth: &Berth| {
            let now = queue.contender(name);
            now.is_some_and(|now| now.token == berth.token)
        };
        known.retain(|name, berth| is_same(name, berth));
        let mut nodes = HashSet::new();
        let is_new = |one: &&Contender| !known.contains_key(&one.name);
        let new: Vec<_> = queue.contenders().filter(is_new).collect();
        let mut words = Words::default();
        if !new.is_empty() {
            words.0.extend(known.values().flat_map(Berth::words));
        }
        for one in new {
            if let Some(berth) = berth(key, one, pods, &mut words) {
                nodes.insert(Arc::clone(&berth.node));
                known.insert(Arc::clone(&one.name), berth);
            }
        }
        if !known.is_empty() {
            self.by_lock.insert(key.clone(), known);
        }
        nodes
    }

    /// Forgets all locks but these.
    pub(super) fn keep(&mut self, is_there: impl Fn(&LockKey) -> bool) {
        self.by_lock.retain(|key, _| is_there(key));
    }

    pub(super) fn vouched(&self) -> usize {
        let berths = self.by_lock.values().flat_map(HashMap::values);
        berths.filter(|berth| berth.machine.is_some()).count()
    }

    /// Forgets a lock that is gone.
    pub(super) fn forget(&mut self, key: &LockKey) {
        self.by_lock.remove(key);
    }

    /// The locks with a contender on a node.
    pub(super) fn locks_on(&self, node: &str) -> Vec<LockKey> {
        let has = |berths: &HashMap<_, Berth>| berths.values().any(|berth| *berth.node == *node);
        let locks = self.by_lock.iter().filter(|(_, berths)| has(berths));
        locks.map(|(key, _)| key.clone()).collect()
    }

    /// The berths of these locks on a node that are not vouched for.
    pub(super) fn unvouched<'a>(
        &self,
        node: &str,
        locks: impl IntoIterator<Item = &'a LockKey>,
    ) -> Vec<Unvouched> {
        let is_it = |berth: &Berth| *berth.node == *node && berth.machine.is_none();
        let of_lock = |key: &LockKey| {
            let berths = self.by_lock.get(key).into_iter().flatten();
            let unvouched = berths.filter(|(_, berth)| is_it(berth));
            let named = unvouched.map(|(contender, berth)| Unvouched {
                key: key.clone(),
                contender: Arc::clone(contender),
                token: berth.token,
            });
            named.collect::<Vec<_>>()
        };
        locks.into_iter().flat_map(of_lock).collect()
    }

    /// The API server was asked for the node of these after they were seen, and this is the answer.
    pub(super) fn vouch(&mut self, asked: &[Unvouched], machine: &Machine) {
        if machine.is_out_of_service {
            return;
        }
        let uid: Arc<str> = machine.uid.as_str().into();
        for Unvouched {
            key,
            contender,
            token,
        } in asked
        {
            let berths = self.by_lock.get_mut(key);
            let berth = berths.and_then(|berths| berths.get_mut(contender));
            let is_it = |berth: &&mut Berth| berth.token == *token && is_younger(berth, machine);
            if let Some(berth) = berth.filter(is_it) {
                berth.machine = Some(Arc::clone(&uid));
            }
        }
    }

    /// The contenders of a lock that were vouched for and are on nodes that may be out of service, in the order of the
    /// queue. `is_suspect` is asked for a node's name and for the UID that it had.
    pub(super) fn suspects(
        &self,
        key: &LockKey,
        participants: &[Participant],
        is_suspect: impl Fn(&str, &str) -> bool,
    ) -> Vec<Suspect> {
        let Some(berths) = self.by_lock.get(key) else {
            return Vec::new();
        };
        let suspect = |one: &Participant| {
            let (contender, berth) = berths.get_key_value(one.name.as_str())?;
            let machine = berth.machine.as_ref()?;
            (berth.token == one.token && is_suspect(&berth.node, machine)).then(|| Suspect {
                contender: Arc::clone(contender),
                token: one.token,
                pod: Arc::clone(&berth.pod),
                node: Arc::clone(&berth.node),
                machine: Arc::clone(machine),
                now: None,
            })
        };
        participants.iter().filter_map(suspect).collect()
    }
}

/// Whether a pod was created after the node that has the name of its node now. One that is older may run on the machine
/// that had this name before.
fn is_younger(berth: &Berth, machine: &Machine) -> bool {
    machine.created.is_some_and(|created| berth.created > created)
}

/// Names of pods and nodes, each once in memory: a tenant may write thousands of contenders for one pod.
#[derive(Default)]
struct Words(HashSet<Arc<str>>);

// === impl Berth ===

impl Berth {
    fn words(&self) -> [Arc<str>; 2] {
        [Arc::clone(&self.pod), Arc::clone(&self.node)]
    }
}

// === impl Words ===

impl Words {
    fn shared(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.0.get(word) {
            return Arc::clone(known);
        }
        let word: Arc<str> = word.into();
        self.0.insert(Arc::clone(&word));
        word
    }
}

/// The berth of a contender, if what it says of its pod is what the API server says.
fn berth(
    key: &LockKey,
    one: &Contender,
    pods: &BTreeMap<String, PodFacts>,
    words: &mut Words,
) -> Option<Berth> {
    let said = one.data.pod.as_ref()?;
    let pod = pods.get(&said.name)?;
    let (node, created) = (pod.node.as_deref()?, pod.created?);
    let is_it = said.namespace == *key.namespace && said.uid == pod.uid && said.node == node;
    // The name becomes part of a request.
    (is_it && is_subdomain(node)).then(|| Berth {
        token: one.token,
        pod: words.shared(&said.name),
        created,
        node: words.shared(node),
        machine: None,
    })
}

#[cfg(test)]
mod tests;
