//! The actions of the state machine, in a list without allocations.

use lockkeeper_lock::FencingToken;

use crate::link::protocol::FromGuard;

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
    /// SIGKILL to processes that have no right to run, but to none that may be another container's; answered by `Saw`
    /// ([`Mode::Container`](super::Mode)).
    Clear,
    /// Tell the keeper, if there is one.
    Report(FromGuard),
    /// Tell the keeper what the last sweep has left.
    ReportSurvivors(FencingToken),
    Exit(u8),
}

/// What a sweep does to each process of the tree before it reports what it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    Kill,
    Stop,
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
    /// The above is true only of doubtful processes, which may not be of the tree ([`Mode::Container`](super::Mode)).
    pub unsure: bool,
    /// All that is not stopped was made after the last SIGSTOP: nothing was woken ([`Mode::Container`](super::Mode)).
    pub fresh: bool,
}

impl Sight {
    /// What two looks saw together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            alive: self.alive || other.alive,
            unstopped: self.unstopped || other.unstopped,
            fresh: (self.fresh || other.fresh) && !self.has_woken() && !other.has_woken(),
            unsure: (self.unsure || other.unsure) && !self.is_sure() && !other.is_sure(),
        }
    }

    /// Whether something that was stopped runs again.
    pub(super) fn has_woken(self) -> bool {
        self.unstopped && !self.fresh
    }

    /// Whether something of the tree is left, or may be because not all could be seen, and not only because the
    /// kernel did not answer.
    pub(super) fn is_sure(self) -> bool {
        self.alive && !self.unsure
    }
}

/// More actions than one event ever causes.
const CAPACITY: usize = 8;

/// The actions for one event, in order.
#[derive(Debug, Default)]
pub struct Actions {
    items: [Option<Action>; CAPACITY],
    len: usize,
}

impl Actions {
    pub(crate) fn push(&mut self, action: Action) {
        self.items[self.len] = Some(action);
        self.len += 1;
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Action> + '_ {
        self.items.iter().map_while(|item| *item)
    }
}
