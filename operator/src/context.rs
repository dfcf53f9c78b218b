//! What a reconciliation needs besides its object.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Recorder;
use lockkeeper_crds::lock::Trial;
use lockkeeper_lock::Agreement;
use tokio::time::Instant;

use crate::adopt::Undescribed;
use crate::changes::Changes;
use crate::ensemble::Ensemble;
use crate::layout::LockKey;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::others::Others;
use crate::pods::Pods;
use crate::rotation::{Making, Obstacle};
use crate::secrets::Secrets;
use crate::turns::Turns;

/// Shared by all reconciliations.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// The operator's own ensemble, by which its replicas choose who writes.
    pub own: Arc<Ensemble>,
    /// Those that locks name in its place.
    pub others: Arc<Others>,
    /// Locks that somebody has to look at, in whichever ensemble.
    pub changes: Arc<Changes>,
    /// The pods behind locks.
    pub pods: Arc<Pods>,
    /// The namespaces' identities.
    pub secrets: Arc<Secrets>,
    /// Who makes and rotates identities.
    pub making: Making,
    /// Whose locks are reconciled at this time.
    pub turns: Turns,
    /// Locks that pods name and that are not there.
    pub undescribed: Undescribed,
    /// Whether this replica may write.
    pub leadership: Leadership,
    /// Events for users.
    pub recorder: Recorder,
    /// What is counted.
    pub metrics: Metrics,
    /// The tick of the operator's ensemble, as its user says.
    pub tick_time: Duration,
    /// What is remembered of each lock.
    pub memories: Memories,
    /// When this replica was started.
    pub started: Instant,
}

/// What is remembered of one lock, and nowhere else.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The uid of the object that it was when its namespace was last seen to have an identity. A namespace that
    /// was deleted and made anew has other objects.
    pub identified: Option<String>,
    /// When its status was written last.
    pub written: Option<Instant>,
    /// Since when it is between two holders.
    pub between: Option<Instant>,
    /// When its nodes were found in order, on which connection and for which identities.
    pub provisioned: Option<Provisioned>,
    /// When a yield was requested last.
    pub yielded: Option<Instant>,
    /// The handoff of a rollout that was requested last, until the status that is seen has it.
    pub trial: Option<Trial>,
    /// The contender of the revision on trial that holds, and since when it was seen to.
    pub trying: Option<(String, Instant)>,
    /// The last loss of the ensemble that its status speaks of.
    pub lost: u64,
    /// Since when nothing of it is left in the ensemble before.
    pub abandoned: Option<Instant>,
    /// Since when it is in this ensemble after another one.
    pub moved: Option<Instant>,
    /// Why the rotation of its namespace's identity was put off when people were told last.
    pub put_off: Option<Obstacle>,
}

/// Nodes that were found in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provisioned {
    /// When.
    pub at: Instant,
    /// In which session.
    pub session: i64,
    /// For whom: the ids of the ACLs.
    pub identities: Vec<String>,
    /// What is written of what contenders have to agree on.
    pub agreement: Agreement,
}

/// What is remembered of all locks.
#[derive(Debug, Default)]
pub struct Memories(Mutex<HashMap<LockKey, Memory>>);

// === impl Memories ===

impl Memories {
    /// What is remembered of a lock.
    pub fn of(&self, key: &LockKey) -> Memory {
        let memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.get(key).cloned().unwrap_or_default()
    }

    /// Remembers something.
    pub fn edit(&self, key: &LockKey, edit: impl FnOnce(&mut Memory)) {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        edit(memories.entry(key.clone()).or_default());
    }

    /// Forgets all locks but these.
    pub fn keep(&self, is_there: impl Fn(&LockKey) -> bool) {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.retain(|key, _| is_there(key));
    }

    /// Forgets a lock that is no more.
    pub fn forget(&self, key: &LockKey) {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.remove(key);
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}
