//! The lock, and the settings of a contender.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::queue::Mode;
use crate::record::Identity;
use crate::ticket::Ticket;
use crate::timing::Timing;

/// Counts events of a lock's task. The task calls its methods, which must not block.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A renewal was acknowledged this long after it was sent.
    fn renewed(&self, took: Duration);
    /// The session was taken to another server.
    fn session_moved(&self);
    /// Our contender took the place of a silent one.
    fn took_over(&self);
    /// A server serves the session: another one, or the same one anew.
    fn connected(&self);
}

/// Which ensemble a lock is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsembleId {
    /// The node that holds the ID, and nothing else.
    pub node: String,
    /// The ID that the node has to hold.
    pub id: uuid::Uuid,
}

/// A lock, and the contender's part in it.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// The lock root: the node below which the contenders stand. Made if it is missing.
    pub root: String,
    /// The control node: yield requests and the last clean releases. Made if it is missing.
    pub control: String,
    /// Another client creates both nodes. While they are missing, or give us no right, the lock stays in
    /// [`crate::LockState::Connecting`] with the reason in [`crate::LockStatus::refusal`]. It goes on as soon as they
    /// are there. If the control node disappears later, the lock keeps working.
    pub provisioned: bool,
    /// The only ensemble in which to queue. While the servers belong to another one, or have no ID, the lock stays in
    /// [`crate::LockState::Connecting`] with the reason. It goes on as soon as that changes.
    pub ensemble: Option<EnsembleId>,
    /// Which contenders may hold at the same time. All contenders of a lock have to agree.
    pub mode: Mode,
    /// The times. [`Timing::check`] checks them again with the negotiated session timeout.
    pub timing: Timing,
    /// The contender's description of itself, for people and for the operator.
    pub identity: Identity,
    /// Find out whether all holders before us released cleanly ([`crate::LockStatus::predecessor_unclean`]), and record
    /// us for those after us. This costs one write before the lock is held, and a read if the control node has changed.
    /// Without it a holder records itself only if it holds alone, and only after it holds.
    pub ask_for_predecessor: bool,
    /// Publish a ticket while the lock is held ([`crate::LockStatus::ticket`]).
    pub gives_ticket: bool,
    /// The contender with which to begin, in place of a new one, if it still exists. A lock that already has a session,
    /// because its user called [`crate::Lock::participants`] first, cannot take it over, and queues as without a ticket.
    pub ticket: Option<Ticket>,
    /// Receives the events to count; `None` if nobody counts them.
    pub observer: Option<Arc<dyn Observer>>,
}

impl LockOptions {
    /// Whether we record ourselves while we hold. If there are several holders, each change makes all of them read the
    /// record, so only those that ask for it write it.
    pub(crate) fn writes_holders(&self) -> bool {
        self.ask_for_predecessor || matches!(self.mode, Mode::Exclusive | Mode::Write)
    }

    /// An exclusive lock at `root`, with its control node beside it: `<root>-control`.
    pub fn new(root: impl Into<String>, timing: Timing) -> Self {
        let root = root.into();
        Self {
            control: format!("{root}-control"),
            root,
            provisioned: false,
            ensemble: None,
            mode: Mode::Exclusive,
            timing,
            identity: Identity::default(),
            ask_for_predecessor: false,
            gives_ticket: false,
            ticket: None,
            observer: None,
        }
    }
}
