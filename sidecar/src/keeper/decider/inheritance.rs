//! What passes from one keeper to the next over the guard, which outlives both: the ticket of the lock.

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken, LockState, LockStatus, Ticket};

use super::act::Ask;
use crate::link::protocol::{Kept, TicketHalf};

/// A lock that was left to us, as it is shown while it is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftLock {
    /// The token under which its application runs.
    pub(crate) token: FencingToken,
    /// Until when its application runs.
    pub(crate) until: BootInstant,
    /// L of its contender, as far as that is known.
    pub(crate) lease: Option<Duration>,
}

/// What the keeper before us has left, and what we leave.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    left: Left,
    /// What the guard has received since it connected.
    kept: Kept,
    /// The ticket that the guard has, as far as we know.
    given: Option<Ticket>,
    /// The lock of that ticket is given up.
    is_over: bool,
}

/// The ticket of the keeper before us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Left {
    #[default]
    Nothing,
    Announced,
    Here(Ticket),
    /// We go on with this contender, and do not hold yet.
    Taken(Ticket),
}

impl Inheritance {
    /// A guard has connected, which announces a ticket or not. A keeper that has queued by itself has no use for one.
    pub(crate) fn greeted(&mut self, has_ticket: bool, is_new: bool) {
        self.kept = Kept::default();
        self.given = None;
        if is_new {
            self.left = if has_ticket {
                Left::Announced
            } else {
                Left::Nothing
            };
        }
    }

    /// The connection to the guard is over.
    pub(crate) fn lost(&mut self) {
        self.given = None;
        if self.left == Left::Announced {
            self.left = Left::Nothing;
        }
    }

    pub(crate) fn hear(&mut self, half: TicketHalf) {
        self.kept.take(half);
        if let (Left::Announced, Some(ticket)) = (self.left, self.kept.ticket()) {
            self.left = Left::Here(ticket);
        }
    }

    /// Whether a ticket is announced and not here yet.
    pub(crate) fn is_awaited(&self) -> bool {
        self.left == Left::Announced
    }

    /// The ticket with which to go on; once.
    pub(crate) fn take(&mut self) -> Option<Ticket> {
        let Left::Here(ticket) = self.left else {
            return None;
        };
        self.left = Left::Taken(ticket);
        self.given = Some(ticket);
        Some(ticket)
    }

    /// Whether the application that runs under this token waits for the lock that was left with it.
    pub(crate) fn goes_on(&self, token: FencingToken, status: &LockStatus, asked: Option<Ask>) -> bool {
        let Left::Taken(ticket) = self.left else {
            return false;
        };
        // With less time the session may be over before the deadline that the guard has.
        let has_shrunk = status
            .session_timeout
            .is_some_and(|granted| granted < ticket.session_timeout);
        if ticket.token != token || status.loss.is_some() || has_shrunk {
            return false;
        }
        match status.token {
            Some(of_contender) => of_contender == token,
            None => status.state == LockState::Connecting || asked == Some(Ask::Contend),
        }
    }

    /// Whether this is the token of a lock that was left to us, and that we have not held yet.
    pub(crate) fn is_left(&self, token: FencingToken) -> bool {
        matches!(self.left, Left::Taken(ticket) if ticket.token == token)
    }

    /// L of the contender that was left to us; `None` if it states none, or while its ticket is not here.
    pub(crate) fn lease(&self) -> Option<Duration> {
        match self.left {
            Left::Here(ticket) | Left::Taken(ticket) => ticket.lease,
            Left::Nothing | Left::Announced => None,
        }
    }

    /// The lock is held: from now on it is ours like any other.
    pub(crate) fn arrived(&mut self) {
        self.left = Left::Nothing;
    }

    /// The lock is given up, or another one than ours.
    pub(crate) fn given_up(&mut self) {
        self.is_over = true;
    }

    /// The ticket that the guard does not have yet; once.
    pub(crate) fn give(&mut self, current: Option<Ticket>) -> Option<Ticket> {
        let ticket = current.filter(|ticket| self.given != Some(*ticket))?;
        self.given = Some(ticket);
        self.is_over = false;
        Some(ticket)
    }

    /// Whether the guard has a ticket with which the next keeper can go on.
    pub(crate) fn is_given(&self) -> bool {
        self.given.is_some() && !self.is_over
    }

    /// Whether the guard has a ticket that is worth nothing any more; true only once.
    pub(crate) fn is_to_be_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.is_over) && self.given.take().is_some()
    }
}
