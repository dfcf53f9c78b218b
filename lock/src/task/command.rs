//! Commands of a handle to its task.

use tokio::sync::oneshot;

use crate::error::LockError;
use crate::participant::Participant;
use crate::record::Survivors;
use crate::token::FencingToken;

/// Answer to a command.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, LockError>>;

/// What the owner of a lock has told its task, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// See [`Lock::retain`](crate::Lock::retain).
    pub is_retained: bool,
    /// See [`Lock::settle`](crate::Lock::settle).
    pub settled: Option<FencingToken>,
    /// See [`Lock::survived`](crate::Lock::survived).
    pub survivors: Option<Survivors>,
}

/// A command of a handle to its task. When all handles are dropped, the lock is abandoned.
pub(crate) enum Command {
    /// Enter the queue; answered when the contender exists.
    Contend(Reply<()>),
    /// Leave the queue, or release; answered when the contender is known to be gone.
    Release { queue_again: bool, reply: Reply<()> },
    /// List the contenders in the queue.
    Participants(Reply<Vec<Participant>>),
    /// End the session and the task. Only for a lock that is not in the queue.
    Close(oneshot::Sender<()>),
}

/// Answers all who wait; nobody has to wait any longer.
pub(super) fn answer<T: Clone>(replies: impl IntoIterator<Item = Reply<T>>, answer: &Result<T, LockError>) {
    for reply in replies {
        let _ = reply.send(answer.clone());
    }
}
