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
    /// What the lock lets happen at the same time. All contenders of a lock have to agree.
    pub mode: Mode,
    /// The times; [`Timing::check`] is asked again with the session timeout as negotiated.
    pub timing: Timing,
    /// Who we are.
    pub identity: Identity,
    /// Find out whether the predecessor released cleanly, which costs one read before the lock is
    /// held ([`crate::LockStatus::predecessor_unclean`]).
    pub ask_for_predecessor: bool,
    /// Who counts what happens.
    pub observer: Option<Arc<dyn Observer>>,
}

impl LockOptions {
    /// An exclusive lock at `root`, with its control node beside it: `<root>-control`.
    pub fn new(root: impl Into<String>, timing: Timing) -> Self {
        let root = root.into();
        Self {
            control: format!("{root}-control"),
            root,
            provisioned: false,
            mode: Mode::Exclusive,
            timing,
            identity: Identity::default(),
            ask_for_predecessor: false,
            observer: None,
        }
    }
}
