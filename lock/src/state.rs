//! The state of a lock as its task publishes it.

use serde::{Deserialize, Serialize};

use crate::clock::BootInstant;
use crate::error::LockError;
use crate::loss::LossReason;
use crate::record::TookOver;
use crate::ticket::Ticket;
use crate::timing;
use crate::token::FencingToken;

/// State of our own place in the queue. `Held`, `Suspended` and `Lost` mean the same as in Curator's `ConnectionState`,
/// except that `Suspended` has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockState {
    /// No place in the queue yet: no session, or the contender is being created.
    Connecting,
    /// In the queue, without the lock.
    Waiting,
    /// No contender is before us and our lease is valid: its deadline has not come ([`LockStatus::deadline`]).
    Held,
    /// Still before the deadline, but the connection is in doubt.
    Suspended,
    /// No longer held, and never again under this token: only a new contender can hold.
    Lost,
    /// Our contender is being deleted.
    Releasing,
    /// No place in the queue, because the owner wants none.
    Released,
}

impl LockState {
    /// All states, for metrics.
    pub const ALL: [Self; 7] = [
        Self::Connecting,
        Self::Waiting,
        Self::Held,
        Self::Suspended,
        Self::Lost,
        Self::Releasing,
        Self::Released,
    ];

    /// Its name, as in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connecting => "Connecting",
            Self::Waiting => "Waiting",
            Self::Held => "Held",
            Self::Suspended => "Suspended",
            Self::Lost => "Lost",
            Self::Releasing => "Releasing",
            Self::Released => "Released",
        }
    }
}

/// A lock at one moment, as its task publishes it after every change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStatus {
    /// What our contender does: only in `Held` and `Suspended` is the lock ours.
    pub state: LockState,
    /// Our contender's token. *Hand it out* only in `Held` and `Suspended`.
    pub token: Option<FencingToken>,
    /// Name of our contender below the lock root.
    pub contender: Option<String>,
    /// How many contenders are known to be before us; 0 when we hold.
    pub position: Option<usize>,
    /// End of the lease, once there is one. The holder stops before it, at [`LockStatus::deadline`].
    pub lease_end: Option<BootInstant>,
    /// Until when no other contender can have taken our place, less the margin, if it states a lease duration
    /// ([`crate::Timing::lease`]).
    pub takeover_deadline: Option<BootInstant>,
    /// L of our contender, while it is in the queue: after this silence the next one may take its place. `None` if only
    /// the session decides ([`crate::Timing::lease`]).
    pub lease_duration: Option<std::time::Duration>,
    /// The holder whose place our contender has taken, because that one was silent for longer than its L.
    pub took_over: Option<TookOver>,
    /// The session, while there is one.
    pub session: Option<i64>,
    /// The session timeout, while there is a session: the shortest one that a server has granted to it.
    pub session_timeout: Option<std::time::Duration>,
    /// In `Held`: a holder before us may still be writing, because it did not release cleanly, or because we cannot
    /// find out whether it did. A resource that cannot check tokens needs a pause (`lockDelay`); at its end call
    /// [`crate::Lock::settle`]. Then this is false again.
    pub predecessor_unclean: bool,
    /// A client asked us to step down, through the control node.
    pub yield_requested: bool,
    /// In `Held` and `Suspended`: with what another process can go on with our contender, once that is known
    /// ([`crate::LockOptions::gives_ticket`]).
    pub ticket: Option<Ticket>,
    /// The reason, in `Lost`.
    pub loss: Option<LossReason>,
    /// Why we cannot have the lock: for good in `Released` and `Lost`; in `Connecting` until another client provides
    /// what is missing ([`crate::LockOptions::provisioned`]); in `Waiting` until a client of an unknown kind leaves the
    /// queue.
    pub refusal: Option<LockError>,
}

impl LockStatus {
    /// Before the first connection.
    pub const fn new() -> Self {
        Self {
            state: LockState::Released,
            token: None,
            contender: None,
            position: None,
            lease_end: None,
            takeover_deadline: None,
            lease_duration: None,
            took_over: None,
            session: None,
            session_timeout: None,
            predecessor_unclean: false,
            yield_requested: false,
            ticket: None,
            loss: None,
            refusal: None,
        }
    }

    /// The moment by which everything that runs under the lock has to have ended: the end of the lease less the margin
    /// ([`crate::Timing::margin`]) for the clocks' rates and for the kernel; or [`LockStatus::takeover_deadline`] if that
    /// is earlier.
    pub fn deadline(&self) -> Option<BootInstant> {
        let of_session = timing::deadline(self.lease_end?, self.session_timeout?);
        Some(
            self.takeover_deadline
                .map_or(of_session, |deadline| deadline.min(of_session)),
        )
    }

    /// Whether the lock is held at `now`: until [`LockStatus::deadline`], and only if the deadline is known.
    pub fn is_held(&self, now: BootInstant) -> bool {
        matches!(self.state, LockState::Held | LockState::Suspended)
            && self.deadline().is_some_and(|deadline| now < deadline)
    }
}

impl Default for LockStatus {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lock_is_held_until_a_nanosecond_before_the_deadline_and_not_until_the_end_of_the_lease() {
        let end = BootInstant::from_nanos(60_000_000_000);
        for state in LockState::ALL {
            let status = LockStatus {
                state,
                lease_end: Some(end),
                session_timeout: Some(Duration::from_secs(15)),
                ..LockStatus::new()
            };
            // 1 % of 15 s, and 200 ms.
            let deadline = end.saturating_sub(Duration::from_millis(350));
            assert_eq!(status.deadline(), Some(deadline));
            let may_hold = matches!(state, LockState::Held | LockState::Suspended);
            let just_before = deadline.saturating_sub(Duration::from_nanos(1));
            assert_eq!(status.is_held(just_before), may_hold, "{state:?}");
            assert!(!status.is_held(deadline), "{state:?}");
            let earlier = LockStatus {
                takeover_deadline: Some(just_before),
                ..status.clone()
            };
            assert!(!earlier.is_held(just_before), "another contender may replace it");
            let unknown = LockStatus {
                session_timeout: None,
                ..status
            };
            assert!(!unknown.is_held(just_before), "the margin is unknown");
        }
    }
}
