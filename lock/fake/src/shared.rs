//! The state of a world, shared by the world and its clients.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::state::State;
use crate::time::Millis;

/// The data that clients and [`crate::World`] share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Notified when an event was added that may be due before the driver wakes.
    pub(crate) changed: Notify,
    /// Notified when the end of a client's freeze has changed.
    pub(crate) refrozen: Notify,
    pub(crate) start: Instant,
}

impl Shared {
    /// The state, at tokio's time.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.run(self.start.elapsed().as_millis() as Millis);
        self.changed.notify_one();
        state
    }
}
