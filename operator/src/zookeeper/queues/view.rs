//! The queues of one ensemble in memory, for all readers.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use uuid::Uuid;

use super::picture::{Picture, Queue};
use crate::lock_key::LockKey;
use crate::work_queue::WorkQueue;

/// The queues of an ensemble, its ID and its tick. Cheap to clone.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    picture: RwLock<Picture>,
    pub(super) changes: Arc<WorkQueue>,
    tick_time: Mutex<Option<Duration>>,
    id: Mutex<Option<Uuid>>,
}

// === impl View ===

impl View {
    /// Knows nothing yet, and announces what changes.
    pub(crate) fn new(changes: Arc<WorkQueue>) -> Self {
        let shared = Shared {
            picture: RwLock::default(),
            changes,
            tick_time: Mutex::default(),
            id: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// One lock as it was seen last; an empty queue when nothing of it is there.
    pub fn queue(&self, key: &LockKey) -> Queue {
        self.shared.read().queue(key).cloned().unwrap_or_default()
    }

    /// How many of a namespace's locks have roots.
    pub(crate) fn roots_of(&self, namespace: &str) -> usize {
        let picture = self.shared.read();
        picture.keys().filter(|key| &*key.namespace == namespace).count()
    }

    /// The locks of a namespace whose roots are there.
    pub(crate) fn locks_of(&self, namespace: &str) -> Vec<LockKey> {
        let picture = self.shared.read();
        let keys = picture.keys().filter(|key| &*key.namespace == namespace);
        keys.cloned().collect()
    }

    /// The ensemble's `tickTime` as it told it last, if it ever did.
    pub fn tick_time(&self) -> Option<Duration> {
        *self
            .shared
            .tick_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Which ensemble it is, as of the last connection.
    pub fn id(&self) -> Option<Uuid> {
        *self.shared.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many lock roots and contenders there are.
    pub(crate) fn size(&self) -> (usize, usize) {
        let picture = self.shared.read();
        (picture.keys().count(), picture.contenders())
    }

    /// Which ensemble it is, and its tick if it tells it: as of a new connection.
    pub(crate) fn identify(&self, id: Uuid, tick_time: Option<Duration>) {
        *self.shared.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        let mut known = self
            .shared
            .tick_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = tick_time.or(*known);
    }

    /// Puts everything that was read anew in the place of what was known.
    pub(crate) fn replace(&self, new: Picture) {
        self.shared.replace(new);
    }

    /// Changes what is known of a lock; true from `edit` means that it is news.
    pub(crate) fn edit(&self, key: &LockKey, edit: impl FnOnce(&mut Picture) -> bool) {
        self.shared.edit(key, edit);
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn read(&self) -> std::sync::RwLockReadGuard<'_, Picture> {
        self.picture.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts everything that was read anew in the place of what was known.
    pub(super) fn replace(&self, new: Picture) {
        // Only this task writes: others may read meanwhile.
        let differences = new.differences(&self.read());
        let mut picture = self.picture.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *picture, new);
        drop(picture);
        drop(old);
        self.changes.announce(differences);
    }

    pub(super) fn edit(&self, key: &LockKey, edit: impl FnOnce(&mut Picture) -> bool) {
        let is_news = edit(&mut self.picture.write().unwrap_or_else(PoisonError::into_inner));
        if is_news {
            self.changes.announce([key.clone()]);
        }
    }
}
