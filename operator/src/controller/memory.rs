//! What this replica remembers of locks between two reconciliations, and nowhere else. Each part of a [`Memory`] answers
//! one question, and changes by its own methods only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::removals::Removals;
use crate::lock_key::LockKey;

mod moving;
mod nodes;
mod telling;
mod trials;

pub(crate) use moving::Moving;
pub(crate) use nodes::{Disorder, KnownNodes, Order, RECHECK};
pub(crate) use telling::Telling;
pub(crate) use trials::Trials;

/// What this replica remembers of one lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// The uid of its object when its namespace was last seen to have an identity. A namespace that was deleted and
    /// created again has other objects.
    identified: Option<String>,
    /// How far it is on its way from one ensemble to another.
    pub(crate) moving: Moving,
    /// Whether its nodes are in order.
    pub(crate) nodes: KnownNodes,
    /// When a yield was requested last.
    pub(crate) yielded: Last,
    /// The request for a handoff that was carried out, until its annotation is removed.
    pub(crate) served: Served,
    /// How the handoffs of its rollouts turned out.
    pub(crate) trials: Trials,
    /// Contenders that were removed because their nodes are out of service, until that is told.
    pub(crate) removals: Removals,
    /// When as many of them were removed as are in one go.
    pub(crate) crowd_removed: Last,
    /// When its status may be written.
    pub(crate) telling: Telling,
}

/// When something was done last, if it was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Last(Option<Instant>);

/// A request of a user that was carried out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served(Option<String>);

#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<HashMap<LockKey, Memory>>);

// === impl Served ===

impl Served {
    pub(crate) fn done(&mut self, request: Option<String>) {
        self.0 = request;
    }

    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    pub(crate) fn is(&self, request: Option<&String>) -> bool {
        self.0.is_some() && self.0.as_ref() == request
    }
}

// === impl Memory ===

impl Memory {
    /// The object with this uid was seen while its namespace had an identity.
    pub(crate) fn identify(&mut self, uid: Option<String>) {
        self.identified = uid;
    }

    /// Whether the object with this uid was there when its namespace had an identity.
    pub(crate) fn was_identified(&self, uid: Option<&str>) -> bool {
        uid.is_some() && self.identified.as_deref() == uid
    }
}

// === impl Last ===

impl Last {
    /// It is done now.
    pub(crate) fn done(&mut self) {
        self.0 = Some(Instant::now());
    }

    /// How long it has to wait so that there is this pause after the last time.
    pub(crate) fn rest(self, pause: Duration) -> Duration {
        self.0
            .map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()))
    }
}

// === impl Memories ===

impl Memories {
    pub(crate) fn of(&self, key: &LockKey) -> Memory {
        self.all().get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn edit<T>(&self, key: &LockKey, edit: impl FnOnce(&mut Memory) -> T) -> T {
        edit(self.all().entry(key.clone()).or_default())
    }

    /// Forgets all locks but these.
    pub(crate) fn keep(&self, is_there: impl Fn(&LockKey) -> bool) {
        self.all().retain(|key, _| is_there(key));
    }

    /// Forgets a lock that is gone.
    pub(crate) fn forget(&self, key: &LockKey) {
        self.all().remove(key);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<LockKey, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
