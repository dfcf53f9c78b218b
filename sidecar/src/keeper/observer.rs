//! Counts what happens, at the place where it happens.

use std::sync::{Arc, Mutex};

use lockkeeper_lock::{BootInstant, FencingToken, LockState, LockStatus};

use crate::guard::protocol::{FromGuard, ToGuard};
use crate::metrics::{LockMetrics, ReleaseOutcome, StopSignal};

/// The metrics of one keeper, and since when it waits and holds.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    metrics: LockMetrics,
    times: Arc<Mutex<Times>>,
}

#[derive(Debug, Default)]
struct Times {
    queued: Option<BootInstant>,
    held: Option<(FencingToken, BootInstant)>,
}

impl Observer {
    pub(super) fn new(metrics: LockMetrics) -> Self {
        Self {
            metrics,
            times: Arc::default(),
        }
    }

    /// The lock's task published a new status.
    pub(super) fn lock_changed(&self, status: &LockStatus) {
        let now = BootInstant::now();
        let mut times = self.times.lock().expect("no panic while it is locked");
        match (status.state, status.token) {
            (LockState::Connecting | LockState::Waiting, _) => {
                times.queued.get_or_insert(now);
            }
            (LockState::Held, Some(token)) if times.held.is_none_or(|(held, _)| held != token) => {
                times.held = Some((token, now));
                let waited = times
                    .queued
                    .take()
                    .map_or_else(Default::default, |since| now - since);
                self.metrics.acquired(waited);
            }
            (LockState::Lost, _) => {
                let held = times.held.take().map(|(_, since)| now - since);
                times.queued = None;
                // Published again and again while it is lost; counted when it was held.
                if let (Some(reason), Some(held)) = (status.loss, held) {
                    self.metrics.lost(reason, Some(held));
                }
            }
            (LockState::Releasing, _) => {
                if let Some((_, since)) = times.held.take() {
                    self.metrics.released(ReleaseOutcome::Confirmed, now - since);
                }
            }
            (LockState::Released, _) => times.queued = None,
            _ => {}
        }
    }

    /// The contender is left to expire.
    pub(super) fn abandoned(&self) {
        let held = self
            .times
            .lock()
            .expect("no panic while it is locked")
            .held
            .take();
        let held = held.map_or_else(Default::default, |(_, since)| BootInstant::now() - since);
        self.metrics.released(ReleaseOutcome::Abandoned, held);
    }

    /// A frame to the guard that makes it send a signal.
    pub(super) fn guard_told(&self, frame: &ToGuard) {
        match frame {
            ToGuard::Stop { .. } => self.metrics.killed(StopSignal::Term),
            ToGuard::Revoke { .. } => self.metrics.killed(StopSignal::Kill),
            ToGuard::Suspect { .. } => self.metrics.killed(StopSignal::Stop),
            _ => {}
        }
    }

    /// What the guard did by itself: at the deadline.
    pub(super) fn guard_said(&self, frame: &FromGuard) {
        if let FromGuard::Paused { .. } = frame {
            self.metrics.killed(StopSignal::Stop);
        }
    }
}

impl lockkeeper_lock::Observer for Observer {
    fn renewed(&self, took: std::time::Duration) {
        self.metrics.renewed(took);
    }

    fn session_moved(&self) {
        self.metrics.session_moved();
    }
}
