//! The actions of the decider.

use lockkeeper_lock::{FencingToken, Ticket};

use crate::link::protocol::ToGuard;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Tell(ToGuard),
    /// Write the file with the token.
    WriteLease(FencingToken),
    /// Remove it, before anything is stopped.
    RemoveLease,
    /// Send a request to the lock; its end is passed to [`Decider::lock_answered`](super::Decider::lock_answered). An
    /// earlier request that is not answered yet is cancelled.
    Ask(Ask),
    /// Make a new lock that goes on with this contender, and ask it for its place. The keeper passes the answer to
    /// [`Decider::lock_answered`](super::Decider::lock_answered), as that of an [`Act::Ask`].
    Resume(Ticket),
    /// Let the contender expire, and make a new lock. Requests to step down fail.
    Abandon,
    /// Kill the guard, which has not answered, and everything that it started. A container that it guards from outside is
    /// killed before.
    KillGuard,
    /// Answer requests to step down: the lock is released.
    AnswerStepDown,
    /// End the keeper, and the guard with the same code.
    End(Ending),
}

/// A request to the lock. One at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A place in the queue.
    Contend,
    /// To leave it.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the application's exit code, or what stands for it.
    Code(u8),
    /// The lock was not acquired within `--wait-timeout`.
    NotAcquired,
    /// The ensemble refuses the lock for good.
    Refused,
}

/// What comes after the lock is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Queue again as soon as the pause after an exit is over.
    QueueAgain,
    End(Ending),
}
