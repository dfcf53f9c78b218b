//! What socket, probes and metrics see of the lock. An unknown state counts as not held.

mod about;
mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_lock::{BootInstant, LockStatus, Timing};
use tokio::sync::watch;

pub use self::about::{About, Guarded};
pub(crate) use self::snapshot::{Snapshot, Survivors};
use crate::link::protocol::Containment;

/// The read side of a lock. A clone is cheap.
#[derive(Clone, Debug)]
pub struct KeeperView {
    status: watch::Receiver<LockStatus>,
    guarded: watch::Receiver<Guarded>,
    about: Arc<About>,
}

// === impl KeeperView ===

impl KeeperView {
    /// A view of the lock whose task publishes into `status`, and whose keeper into `guarded`.
    pub fn new(status: watch::Receiver<LockStatus>, guarded: watch::Receiver<Guarded>, about: About) -> Self {
        Self {
            status,
            guarded,
            about: Arc::new(about),
        }
    }

    pub(crate) fn now(&self) -> Snapshot {
        let guarded = *self.guarded.borrow();
        self.about.snapshot(
            &self.status.borrow(),
            guarded,
            self.is_alive(),
            BootInstant::now(),
        )
    }

    /// What holds the application together, once its guard has said so.
    pub(crate) fn containment(&self) -> Option<Containment> {
        self.guarded.borrow().containment
    }

    /// How many may hold together with this one; `None` for a reader: any number.
    pub(crate) fn max_holders(&self) -> Option<u32> {
        self.about.access.max_holders()
    }

    /// Time between SIGTERM and SIGKILL.
    pub(crate) fn stop_grace(&self) -> Duration {
        self.about.timing.stop_grace
    }

    /// How long the servers may be silent, from the moment at which a renewal is due, until the application gets
    /// SIGTERM.
    pub(crate) fn patience(&self) -> Duration {
        self.timing().least_spare().unwrap_or_default()
    }

    /// The times, with the session timeout that the servers have granted.
    pub(crate) fn timing(&self) -> Timing {
        let timing = self.about.timing;
        let granted = self.status.borrow().session_timeout;
        timing.granted(granted.unwrap_or(timing.session_timeout))
    }

    /// Whether the keeper is there that would publish a change.
    pub(crate) fn is_alive(&self) -> bool {
        self.status.has_changed().is_ok()
    }

    /// The lock now; [`KeeperView::changed`] then waits for what comes after it.
    pub(crate) fn take(&mut self) -> Snapshot {
        let alive = self.is_alive();
        let guarded = *self.guarded.borrow_and_update();
        let status = self.status.borrow_and_update();
        self.about.snapshot(&status, guarded, alive, BootInstant::now())
    }

    /// Waits for a change; false when there will be none.
    pub(crate) async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.status.changed() => changed.is_ok(),
            Ok(()) = self.guarded.changed() => true,
        }
    }
}
