//! What the state machine wants to be done, in a list that needs no memory of its own.

use lockkeeper_lock::FencingToken;

use crate::guard::protocol::FromGuard;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start the application; answered by `Started` or `StartFailed`.
    Start(FencingToken),
    /// Remove the file without which a kubelet starts nothing ([`Mode::Container`](super::Mode)).
    RemoveLease,
    /// SIGTERM to the main process.
    Terminate,
    /// This signal to the main process.
    Forward(u8),
    /// Go over the whole tree; answered by `Saw`.
    Sweep(Sweep),
    /// Tell the keeper, if there is one.
    Report(FromGuard),
    /// End the guard.
    Exit(u8),
}

/// What a sweep does to each process of the tree before it reports what it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// Nothing.
    Look,
}

/// More than one event ever causes.
const CAPACITY: usize = 8;

/// The actions for one event, in order.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    items: [Option<Action>; CAPACITY],
    len: usize,
}

impl Actions {
    pub fn push(&mut self, action: Action) {
        self.items[self.len] = Some(action);
        self.len += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = Action> + '_ {
        self.items.iter().map_while(|item| *item)
    }
}
