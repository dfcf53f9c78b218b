//! What is shown of a lock: what never changes, its status, and what is known of the application.

#[cfg(test)]
mod tests;

use std::time::Duration;

use lockkeeper_lock::{BootInstant, LockState, LockStatus, Timing};

use super::snapshot::{Snapshot, Survivors};
use crate::access::Access;
use crate::link::protocol::Containment;

/// What does not change while the keeper lives.
#[derive(Debug)]
pub struct About {
    /// Path of the lock.
    pub lock: String,
    pub access: Access,
    pub timing: Timing,
    /// The application may be stopped for a while, and go on.
    pub pauses: bool,
}

/// What the keeper knows of the application that is guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// What holds it together, once its guard has said so.
    pub containment: Option<Containment>,
    /// What of it has outlived its deadline.
    pub survivors: Option<Survivors>,
}

impl About {
    /// An exclusive lock at this path, with the default times, whose application is never paused.
    pub fn exclusive(lock: &str) -> Self {
        Self {
            lock: lock.to_owned(),
            access: Access::Exclusive,
            timing: Timing::new(Duration::from_secs(15)),
            pauses: false,
        }
    }

    /// The lock at `now`; `alive` while its task publishes changes.
    pub(super) fn snapshot(
        &self,
        status: &LockStatus,
        guarded: Guarded,
        alive: bool,
        now: BootInstant,
    ) -> Snapshot {
        let remaining = status
            .deadline()
            .filter(|_| alive && status.is_held(now))
            .map(|deadline| deadline.saturating_since(now));
        let state = match status.state {
            state if remaining.is_some() => state,
            LockState::Held | LockState::Suspended => LockState::Lost,
            LockState::Released => LockState::Released,
            _ if !alive => LockState::Lost,
            state => state,
        };
        let queued = matches!(state, LockState::Waiting | LockState::Held | LockState::Suspended);
        Snapshot {
            lock: self.lock.clone(),
            state,
            access: self.access.name().to_owned(),
            max_holders: match self.access {
                Access::Semaphore(holders) => Some(holders),
                Access::Exclusive | Access::Write | Access::Read => None,
            },
            fencing_token: status.token.filter(|_| remaining.is_some()),
            position: status.position.filter(|_| queued),
            remaining_millis: remaining.map(millis),
            stop_budget_millis: millis(self.timing.stop_grace),
            lease_millis: status.lease_duration.filter(|_| queued).map(millis),
            took_over: status.took_over.clone().filter(|_| queued),
            pauses: self.pauses,
            containment: guarded
                .containment
                .map(|containment| containment.name().to_owned()),
            reason: match (guarded.survivors, &status.refusal) {
                (Some(survivors), _) => Some(survivors.explain(status.contender.is_some())),
                (None, refusal) => refusal.as_ref().map(ToString::to_string),
            },
            survivors: guarded.survivors,
            session: status.session.filter(|_| alive).map(|id| format!("{id:#x}")),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
