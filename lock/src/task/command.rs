//! Commands of a handle to its task.

use tokio::sync::oneshot;

use crate::error::LockError;
use crate::participant::Participant;

/// Answer to a command.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, LockError>>;

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
