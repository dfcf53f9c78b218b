//! The controllers: they bring the cluster and the ensembles to what each `DistributedLock` asks for.
//!
//! [`reconcile`] is the pipeline for one lock. [`provision_identity`] is a controller of its own, for the identity of each
//! namespace. The other modules choose the locks ([`followed_locks`], [`missing_locks`]), limit how many are
//! reconciled at once ([`turns`]), and decide about them without I/O ([`status`], [`rollout`]).

use std::time::Duration;

pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod followed_locks;
pub(crate) mod memory;
pub(crate) mod missing_locks;
pub(crate) mod provision_identity;
pub(crate) mod reconcile;
pub(crate) mod removals;
pub(crate) mod rollout;
pub mod status;
pub(crate) mod triggers;
pub(crate) mod turns;
pub(crate) mod writer;

/// Time between two looks at what changes without an event: a workload in the middle of a rollout, a namespace that is
/// being deleted, contenders that a rotation waits for.
const LOOK: Duration = Duration::from_secs(15);
