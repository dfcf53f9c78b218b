//! The lock: its status, and our place in its queue.

use lockkeeper_lock::{BootInstant, FencingToken, LockState, LockStatus, LossReason};

use super::act::Ask;

/// Our place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// We have none, or gave it up.
    Out,
    /// We have asked for one.
    Entering,
    /// We have asked for one and got it.
    In,
    /// We have asked to leave.
    Leaving {
        /// At the end of the keeper: when leaving has taken too long.
        by: Option<BootInstant>,
    },
}

/// What is known of the lock.
#[derive(Debug)]
pub(super) struct Queue {
    status: LockStatus,
    place: Place,
    /// The token that was held last, and since when.
    held_since: Option<(FencingToken, BootInstant)>,
    /// The token that others may have taken over already, whatever the lease says.
    revoked: Option<FencingToken>,
    /// When the wait for the lock is over (`--wait-timeout`).
    give_up_at: Option<BootInstant>,
    /// When to queue again, after the application has exited.
    contend_at: Option<BootInstant>,
    /// The lock is to expire: another guard took the place of one that may have left something behind, or a user
    /// gives up what has outlived its deadline.
    is_in_doubt: bool,
    /// A place was asked for before.
    is_used: bool,
}

impl Queue {
    /// Not in it yet, and not longer than until `give_up_at`.
    pub(crate) fn new(give_up_at: Option<BootInstant>) -> Self {
        Self {
            status: LockStatus::new(),
            place: Place::Out,
            held_since: None,
            revoked: None,
            give_up_at,
            contend_at: None,
            is_in_doubt: false,
            is_used: false,
        }
    }

    pub(crate) fn status(&self) -> &LockStatus {
        &self.status
    }

    pub(crate) fn state(&self) -> LockState {
        self.status.state
    }

    /// The lock has a new status. Whether it is refused for good.
    pub(crate) fn changed(&mut self, status: LockStatus, now: BootInstant) -> bool {
        if let (true, Some(token)) = (status.is_held(now), status.token)
            && self.held_since.is_none_or(|(old, _)| old != token)
        {
            self.held_since = Some((token, now));
            self.give_up_at = None;
        }
        let is_refused = status.loss == Some(LossReason::Refused);
        match status.loss {
            None | Some(LossReason::DeadlineReached) => {}
            Some(_) => {
                self.revoked = self.held_since.map(|(token, _)| token);
            }
        }
        self.status = status;
        is_refused
    }

    /// The token under which the application may run now, and until when.
    pub(crate) fn held(&self, now: BootInstant) -> Option<(FencingToken, BootInstant)> {
        if !self.status.is_held(now) {
            return None;
        }
        Some((self.status.token?, self.status.deadline()?))
    }

    pub(crate) fn has_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// Since when the lock is held, or was held last.
    pub(crate) fn held_since(&self) -> Option<BootInstant> {
        self.held_since.map(|(_, since)| since)
    }

    /// Whether this is the token of the lock that was held last, and not one of another keeper's.
    pub(crate) fn is_ours(&self, token: FencingToken) -> bool {
        self.held_since.is_some_and(|(held, _)| held == token)
    }

    /// Whether others may have taken over from this token already.
    pub(crate) fn is_revoked(&self, token: FencingToken) -> bool {
        self.revoked == Some(token)
    }

    /// The token that is held according to the last status and the lease.
    pub(crate) fn held_under(&self, now: BootInstant) -> Option<FencingToken> {
        let (token, _) = self.held_since?;
        (self.status.token == Some(token) && self.status.is_held(now)).then_some(token)
    }

    /// The request that is not answered yet.
    pub(crate) fn asked(&self) -> Option<Ask> {
        match self.place {
            Place::Entering => Some(Ask::Contend),
            Place::Leaving { .. } => Some(Ask::Release),
            Place::Out | Place::In => None,
        }
    }

    pub(crate) fn enter(&mut self) {
        self.is_used = true;
        self.place = Place::Entering;
    }

    /// Whether no place was ever asked for.
    pub(crate) fn is_new(&self) -> bool {
        !self.is_used
    }

    /// `--wait-timeout` does not count: the lock was acquired before.
    pub(crate) fn wait_for_ever(&mut self) {
        self.give_up_at = None;
    }

    /// The place is given up; at the end of the keeper not later than `by`.
    pub(crate) fn leave(&mut self, by: Option<BootInstant>) {
        self.place = Place::Leaving { by };
    }

    /// The moment by which it has to be left, which is `by` if none was set.
    pub(crate) fn leave_by(&mut self, by: BootInstant) -> BootInstant {
        match &mut self.place {
            Place::Leaving { by: set } => *set.get_or_insert(by),
            Place::Out | Place::Entering | Place::In => by,
        }
    }

    /// The request is answered: `is_in` says whether we are in the queue now.
    pub(crate) fn answered(&mut self, is_in: bool) {
        self.place = if is_in { Place::In } else { Place::Out };
    }

    /// The contender is to expire.
    pub(crate) fn abandon(&mut self) {
        self.place = Place::Out;
        self.status = LockStatus::new();
    }

    /// Whether we lost the place without a request to leave: a request in the background was refused for good.
    pub(crate) fn is_thrown_out(&self) -> bool {
        self.place == Place::In && self.status.state == LockState::Released
    }

    /// The lock is to be left to expire.
    pub(crate) fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// Whether the lock is to expire; true only once.
    pub(crate) fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_in_doubt)
    }

    /// Queue again no sooner than at this moment.
    pub(crate) fn pause_until(&mut self, contend_at: BootInstant) {
        self.contend_at = Some(contend_at);
    }

    /// Whether queueing again has to wait.
    pub(crate) fn has_to_pause(&self) -> bool {
        self.contend_at.is_some()
    }

    /// Time has passed. Returns whether the wait for the lock is over; with `tries_once` it is as soon as another
    /// contender is seen before us.
    pub(crate) fn look_at_the_clock(&mut self, now: BootInstant, tries_once: bool) -> bool {
        self.contend_at.take_if(|moment| *moment <= now);
        let is_over = self.give_up_at.is_some_and(|moment| moment <= now);
        let is_hopeless = tries_once
            && self.held_since.is_none()
            && self.status.state == LockState::Waiting
            && self.status.position.is_some_and(|position| position > 0);
        if is_over || is_hopeless {
            self.give_up_at = None;
        }
        is_over || is_hopeless
    }

    pub(crate) fn wake_at(&self) -> [Option<BootInstant>; 3] {
        let leave_by = match self.place {
            Place::Leaving { by } => by,
            Place::Out | Place::Entering | Place::In => None,
        };
        [self.give_up_at, leave_by, self.contend_at]
    }
}
