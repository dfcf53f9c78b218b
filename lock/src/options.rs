//! What to lock, and how.

use crate::queue::Mode;
use crate::record::Identity;
use crate::timing::Timing;

/// A lock and one's part in it.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// The lock root: the node below which the contenders stand. Made if it is missing.
    pub root: String,
    /// The control node: yield requests and the last clean releases. Made if it is missing.
    pub control: String,
    /// What the lock lets happen at the same time. All contenders of a lock have to agree.
    pub mode: Mode,
    /// The times; [`Timing::check`] is asked again with the session timeout as negotiated.
    pub timing: Timing,
    /// Who we are.
    pub identity: Identity,
    /// Find out whether the predecessor released cleanly, which costs one read before the lock is
    /// held ([`crate::LockStatus::predecessor_unclean`]).
    pub ask_for_predecessor: bool,
}

impl LockOptions {
    /// An exclusive lock at `root`, with its control node beside it: `<root>-control`.
    pub fn new(root: impl Into<String>, timing: Timing) -> Self {
        let root = root.into();
        Self {
            control: format!("{root}-control"),
            root,
            mode: Mode::Exclusive,
            timing,
            identity: Identity::default(),
            ask_for_predecessor: false,
        }
    }
}
