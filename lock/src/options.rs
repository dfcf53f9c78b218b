//! What to lock, and how.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::queue::Mode;
use crate::record::Identity;
use crate::timing::Timing;

/// Whoever counts what a lock's task does. Its methods are called by that task and must not block.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A renewal was acknowledged, so long after it was sent.
    fn renewed(&self, took: Duration);
    /// The session was taken to another server.
    fn session_moved(&self);
    /// A server serves the session: another one, or the same one anew.
    fn connected(&self);
}

/// Which ensemble a lock is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsembleId {
    /// The node that holds the ID, and nothing else.
    pub node: String,
    /// The ID.
    pub id: uuid::Uuid,
}

/// A lock and one's part in it.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// The lock root: the node below which the contenders stand. Made if it is missing.
    pub root: String,
    /// The control node: yield requests and the last clean releases. Made if it is missing.
    pub control: String,
    /// Both nodes are somebody else's to make. While they are missing, or give us no right, the lock
    /// stays in [`crate::LockState::Connecting`] and says why ([`crate::LockStatus::refusal`]); it goes
    /// on as soon as they are there. A control node that goes later is done without.
    pub provisioned: bool,
    /// The only ensemble in which to queue. While the servers are those of another one, or do not say of which,
    /// the lock stays in [`crate::LockState::Connecting`] and says why; it goes on as soon as that changes.
    pub ensemble: Option<EnsembleId>,
    /// What the lock lets happen at the same time. All contenders of a lock have to agree.
    pub mode: Mode,
    /// The times; [`Timing::check`] is asked again with the session timeout as negotiated.
    pub timing: Timing,
    /// Who we are.
    pub identity: Identity,
    /// Find out whether all before us released cleanly ([`crate::LockStatus::predecessor_unclean`]), and see to it that
    /// those after us find out about us: one write before the lock is held, and a read where the control node has
    /// changed. Without it a holder of its own accord writes itself down where it holds alone, and only when it
    /// holds already.
    pub ask_for_predecessor: bool,
    /// Who counts what happens.
    pub observer: Option<Arc<dyn Observer>>,
}

impl LockOptions {
    /// Whether we write ourselves down while we hold. Where several hold, each change makes all of them read: so it is
    /// left to those who ask.
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
            observer: None,
        }
    }
}
