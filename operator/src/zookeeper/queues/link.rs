//! How the connection to an ensemble stands.

use std::sync::Arc;

use lockkeeper_lock::zookeeper::Onlooker;

use crate::problem::Problem;

/// How the operator stands with the ensemble; what it asks there goes by `C`.
#[derive(Clone, Debug)]
pub enum Link<C = Arc<Onlooker>> {
    /// Not connected, and why; before the first attempt as well.
    Down(Problem),
    /// Connected; everything is being read, and what is known may be old.
    Reading,
    /// Connected, and the picture follows.
    Up(C),
}

// === impl Link ===

impl<C> Link<C> {
    /// The connection, if the picture is fresh.
    pub fn up(&self) -> Option<&C> {
        match self {
            Self::Up(connection) => Some(connection),
            Self::Down(_) | Self::Reading => None,
        }
    }
}
