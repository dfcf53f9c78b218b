//! Deaths that are known: contenders of machines that an administrator has powered off.
//!
//! The operator deletes a contender whose machine is off, so that the next one need not wait for its lease duration, or
//! for the end of its session. `docs/safety.md` has the argument. [`contender_machines`] remembers which contender is on
//! which machine, [`machine`] says what counts of a node, [`nodes`] reads them, and [`turns`] says which is next. All
//! replicas do that, so that the next leader knows what the last one knew. None of this exists unless the administrator
//! has said that the taint is a proof (`--trust-out-of-service-taint`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use lockkeeper_lock::Participant;

use crate::kubernetes::pods::PodFacts;
use crate::lock_key::LockKey;
use crate::work_queue::WorkQueue;
use crate::zookeeper::queues::picture::Queue;

mod contender_machines;
pub(crate) mod machine;
mod nodes;
mod turns;

pub(crate) use contender_machines::Suspect;
use contender_machines::{Berths, Unvouched};
use machine::Machine;
use nodes::Answer;
pub(crate) use nodes::Nodes;
use turns::Turns;

/// Until a node that could not be read is read again.
const PAUSE: Duration = Duration::from_secs(2);

/// Nodes that are read at once for new contenders, and as many for each lock that is looked at: few, since webhooks and
/// statuses go to the same API server as the same user.
const AT_ONCE: usize = 4;

/// How long a lock waits for all nodes together that count for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known of machines and of the contenders on them.
#[derive(Debug)]
pub(crate) struct Fencing {
    known: Mutex<Known>,
    /// Locks that have to be looked at.
    changes: Arc<WorkQueue>,
    /// Nodes that have to be read, each for a lock with a new contender there.
    asked: WorkQueue<(Arc<str>, LockKey)>,
}

#[derive(Debug, Default)]
struct Known {
    berths: Berths,
    tainted: HashMap<Arc<str>, Tainted>,
}

#[derive(Debug)]
struct Tainted {
    /// As it was seen last. Where it counts, it is read again.
    seen: Machine,
    /// What was read. A new one whenever a contender is vouched for: no answer to an earlier question counts for that
    /// contender.
    now: Arc<Answer>,
}

// === impl Fencing ===

impl Fencing {
    /// Knows nothing yet. Announces locks that have to be looked at.
    pub(crate) fn new(changes: Arc<WorkQueue>) -> Self {
        Self {
            known: Mutex::default(),
            changes,
            asked: WorkQueue::default(),
        }
    }

    /// How many contenders would be dead if their nodes were out of service from now on.
    pub(crate) fn vouched(&self) -> usize {
        self.known().berths.vouched()
    }

    /// Takes in a queue, as it was just seen, and the pods behind its lock.
    pub(crate) fn note(&self, key: &LockKey, queue: &Queue, pods: &BTreeMap<String, PodFacts>) {
        let nodes = self.known().berths.note(key, queue, pods);
        self.asked
            .announce(nodes.into_iter().map(|node| (node, key.clone())));
    }

    /// Forgets all locks but these.
    pub(crate) fn keep(&self, is_there: impl Fn(&LockKey) -> bool) {
        self.known().berths.keep(is_there);
    }

    /// Forgets a lock that is gone.
    pub(crate) fn forget(&self, key: &LockKey) {
        self.known().berths.forget(key);
    }

    /// The contenders of a lock that were vouched for and are on nodes that have the taint and are silent, each with its
    /// node as it is now; and whether a node could not be read, so that it has to be tried again.
    pub(crate) async fn suspects(
        &self,
        nodes: &Nodes,
        key: &LockKey,
        participants: &[Participant],
    ) -> (Vec<Suspect>, bool) {
        let (mut suspects, answers) = self.suspected(key, participants);
        if suspects.is_empty() {
            return (suspects, false);
        }
        let mut reads = stream::iter(answers)
            .map(|(node, answer)| async move {
                let read = answer.get(nodes, &node).await;
                (node, read)
            })
            .buffer_unordered(AT_ONCE);
        let (mut read, mut is_late) = (HashMap::new(), false);
        let all = async {
            while let Some((node, answer)) = reads.next().await {
                is_late |= answer.is_err();
                read.insert(node, answer.ok().flatten());
            }
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            tracing::warn!(lock = %key, "The nodes of a lock were not read within {PATIENCE:?}; trying again");
            is_late = true;
        }
        for suspect in &mut suspects {
            suspect.now = read.get(&suspect.node).cloned().flatten();
        }
        (suspects, is_late)
    }

    /// The suspects as they are known, and who says what their nodes are now: at one moment, so that no answer was asked
    /// for before its suspect was vouched for.
    fn suspected(
        &self,
        key: &LockKey,
        participants: &[Participant],
    ) -> (Vec<Suspect>, HashMap<Arc<str>, Arc<Answer>>) {
        let known = self.known();
        let is_suspect = |node: &str, machine: &str| {
            let tainted = known.tainted.get(node);
            tainted.is_some_and(|node| node.seen.is_silent && node.seen.uid == machine)
        };
        let suspects = known.berths.suspects(key, participants, is_suspect);
        let answer = |suspect: &Suspect| {
            let tainted = known.tainted.get(&suspect.node)?;
            Some((Arc::clone(&suspect.node), Arc::clone(&tainted.now)))
        };
        let answers = suspects.iter().filter_map(answer).collect();
        (suspects, answers)
    }

    /// Reads the nodes of new contenders; to be run as a task. Never ends.
    pub(crate) async fn vouch(&self, nodes: Nodes) {
        let (mut turns, mut reads) = (Turns::default(), FuturesUnordered::new());
        loop {
            while reads.len() < AT_ONCE
                && let Some((node, keys)) = turns.next()
            {
                // Those that are in their queues before the API server is asked.
                let asked = self.known().berths.unvouched(&node, &keys);
                if !asked.is_empty() {
                    reads.push(self.vouch_on(&nodes, node, keys, asked));
                }
            }
            tokio::select! {
                asked = self.asked.take() => turns.add(asked),
                Some(failed) = reads.next() => turns.add(failed),
            }
        }
    }

    /// Reads a node for new contenders. Returns what has to be tried again, after a pause.
    async fn vouch_on(
        &self,
        nodes: &Nodes,
        node: Arc<str>,
        keys: Vec<LockKey>,
        asked: Vec<Unvouched>,
    ) -> Vec<(Arc<str>, LockKey)> {
        match nodes.read(&node).await {
            Ok(Some(machine)) if machine.is_out_of_service => self.see(&node, Some(&machine)),
            Ok(Some(machine)) => {
                let mut known = self.known();
                known.berths.vouch(&asked, &machine);
                if let Some(tainted) = known.tainted.get_mut(&node) {
                    tainted.now = Arc::default();
                    // The taint came in between.
                    self.changes.announce(keys);
                }
            }
            // No contender is on a machine that Kubernetes does not know.
            Ok(None) => {}
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                return keys.into_iter().map(|key| (Arc::clone(&node), key)).collect();
            }
        }
        Vec::new()
    }

    /// Takes in all nodes that there are.
    pub(crate) fn see_all(&self, nodes: HashMap<String, Machine>) {
        let before: Vec<_> = self.known().tainted.keys().cloned().collect();
        let gone = before.iter().filter(|name| !nodes.contains_key(&***name));
        gone.for_each(|name| self.see(name, None));
        nodes
            .iter()
            .for_each(|(name, machine)| self.see(name, Some(machine)));
    }

    /// Takes in a node as it is, or that it is gone.
    pub(crate) fn see(&self, node: &str, machine: Option<&Machine>) {
        let mut known = self.known();
        if let Some(seen) = machine.filter(|machine| machine.is_out_of_service) {
            if known.tainted.get(node).is_some_and(|before| before.seen == *seen) {
                return;
            }
            let tainted = Tainted {
                seen: seen.clone(),
                now: Arc::default(),
            };
            known.tainted.insert(node.into(), tainted);
            if seen.is_silent {
                self.changes.announce(known.berths.locks_on(node));
            }
        } else if let Some((node, _)) = known.tainted.remove_entry(node) {
            // Contenders that came under the taint are vouched for now.
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
