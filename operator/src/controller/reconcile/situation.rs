//! How a lock stands with its ensemble.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_crds::DistributedLock;

use crate::controller::context::Context;
use crate::controller::writer::LeasedWay;
use crate::problem::Problem;
use crate::zookeeper::foreign::{Source, Standing};
use crate::zookeeper::reachability::Reachability;

/// The ticks that settings are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    /// The tick of the operator's own ensemble, as configured.
    pub(crate) stated: Duration,
    /// The tick of the lock's ensemble, if it tells.
    pub(crate) told: Option<Duration>,
}

/// How a lock stands with its ensemble.
#[derive(Debug)]
pub(crate) enum Situation {
    /// The operator reaches it and follows the queue.
    Followed {
        way: LeasedWay,
        /// Whether it is the operator's own.
        is_own: bool,
        /// The ticks that settings are checked against.
        ticks: Ticks,
        /// Why the lock is not ready.
        problem: Option<Problem>,
    },
    /// More is below its root than is followed.
    Crowded { way: LeasedWay, problem: Problem },
    OutOfReach {
        problem: Problem,
        /// The credentials are gone, or the operator may not go there: its nodes cannot be removed any more.
        is_orphaned: bool,
    },
    /// The lock is in another ensemble, is being deleted, and none of its pods is left.
    Abandoned,
}

// === impl Situation ===

impl Situation {
    /// The way to the ensemble, if there is one.
    pub(crate) fn way(&self) -> Option<&LeasedWay> {
        match self {
            Self::Followed { way, .. } | Self::Crowded { way, .. } => Some(way),
            Self::OutOfReach { .. } | Self::Abandoned => None,
        }
    }
}

/// How the operator stands with the ensemble of a lock.
pub(super) fn standing(ctx: &Context, lock: &DistributedLock, own: Reachability) -> Standing {
    match (Source::of(lock, &ctx.own.connect), own) {
        (Ok(None), Reachability::Up(way)) => Standing::Up {
            ensemble: Arc::clone(&ctx.own),
            way,
            problem: None,
        },
        (Ok(None), Reachability::Lost { problem, .. }) => Standing::Out(problem),
        (Ok(None), Reachability::Unsure) => Standing::Unsure,
        (Ok(Some(source)), _) => ctx.other_ensembles.standing(&source),
        (Err(problem), _) => Standing::Out(problem),
    }
}
