//! What the state machine wants to be done, in a list that needs no memory of its own.

use lockkeeper_lock::FencingToken;

use crate::guard::protocol::FromGuard;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
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
    /// Tell the keeper what the last sweep has left.
    ReportSurvivors(FencingToken),
    /// End the guard.
    Exit(u8),
}

/// What a sweep does to each process of the tree before it reports what it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// Nothing.
    Look,
}

/// What a sweep over the tree saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Something of the tree is left. Also when the sweep could not see everything.
    pub alive: bool,
    /// Something of the tree was not stopped. Also when the sweep could not see everything.
    pub unstopped: bool,
}

impl Sight {
    /// What two looks saw together.
    pub fn and(self, other: Self) -> Self {
        Self {
            alive: self.alive || other.alive,
            unstopped: self.unstopped || other.unstopped,
        }
    }
}

/// More than one event ever causes.
const CAPACITY: usize = 8;

/// The actions for one event, in order.
#[derive(Debug, Default)]
pub struct Actions {
    items: [Option<Action>; CAPACITY],
    len: usize,
}

impl Actions {
    /// One more.
    pub fn push(&mut self, action: Action) {
        self.items[self.len] = Some(action);
        self.len += 1;
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Action> + '_ {
        self.items.iter().map_while(|item| *item)
    }
}
