//! What this replica remembers of locks between two reconciliations, and nowhere else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use lockkeeper_crds::lock::Trial;
use lockkeeper_lock::{Agreement, FencingToken};
use tokio::time::Instant;

use crate::controller::removals::Removals;
use crate::lock_key::LockKey;

/// What this replica remembers of one lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// The token of the time for which this replica has led without a break.
    pub(crate) term: Option<FencingToken>,
    /// The uid of its object when its namespace was last seen to have an identity. A namespace that was deleted and
    /// created again has other objects.
    pub(crate) identified: Option<String>,
    /// When its status was written last.
    pub(crate) written: Option<Instant>,
    /// Since when it is between two holders.
    pub(crate) between: Option<Instant>,
    /// When its nodes were found in order, on which connection and for which identities.
    pub(crate) provisioned: Option<Provisioned>,
    /// When a yield was requested last.
    pub(crate) yielded: Option<Instant>,
    /// The handoff of a rollout that was requested last, until the status that is seen has it.
    pub(crate) trial: Option<Trial>,
    /// The contender of the revision on trial that holds, and since when it was seen to.
    pub(crate) trying: Option<(String, Instant)>,
    /// Contenders that were removed because their nodes are out of service, until that is told.
    pub(crate) removals: Removals,
    /// When as many of them were removed as are in one go.
    pub(crate) crowd_removed: Option<Instant>,
    /// The last loss of the ensemble that its status speaks of.
    pub(crate) lost: u64,
    /// Since when nothing of it is left in the ensemble before.
    pub(crate) abandoned: Option<Instant>,
    /// Since when it is in this ensemble after another one.
    pub(crate) moved: Option<Instant>,
}

/// Nodes that were found in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provisioned {
    pub(crate) at: Instant,
    pub(crate) session: i64,
    /// For which identities: the ids of the ACLs.
    pub(crate) identities: Vec<String>,
    /// What is written of what contenders have to agree on.
    pub(crate) agreement: Agreement,
}

#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<HashMap<LockKey, Memory>>);

// === impl Memory ===

impl Memory {
    /// This replica leads under this token. What it saw under another one of a move between ensembles is forgotten: others
    /// may have led and written meanwhile.
    pub(crate) fn enter(&mut self, term: FencingToken) {
        if self.term != Some(term) {
            self.term = Some(term);
            self.abandoned = None;
            self.moved = None;
        }
    }
}

// === impl Memories ===

impl Memories {
    pub(crate) fn of(&self, key: &LockKey) -> Memory {
        let memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn edit(&self, key: &LockKey, edit: impl FnOnce(&mut Memory)) {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        edit(memories.entry(key.clone()).or_default());
    }

    /// Forgets all locks but these.
    pub(crate) fn keep(&self, is_there: impl Fn(&LockKey) -> bool) {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.retain(|key, _| is_there(key));
    }

    /// Forgets a lock that is gone.
    pub(crate) fn forget(&self, key: &LockKey) {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_of_a_move_is_forgotten_when_another_replica_may_have_led_meanwhile() {
        let seen = Memory {
            term: Some(FencingToken(1)),
            abandoned: Some(Instant::now()),
            moved: Some(Instant::now()),
            ..Memory::default()
        };
        let (mut same, mut other) = (seen.clone(), seen);
        same.enter(FencingToken(1));
        other.enter(FencingToken(2));
        assert!(same.abandoned.is_some() && same.moved.is_some());
        assert!(other.abandoned.is_none() && other.moved.is_none());
    }
}
