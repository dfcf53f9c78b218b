//! The controllers: they bring the cluster and the ensembles to what each `DistributedLock` asks for.
//!
//! [`reconcile`] is the pipeline for one lock. [`identities`] is a controller of its own, for the identity of each
//! namespace. The other modules choose the locks ([`followed_locks`], [`missing_locks`]), limit how many are
//! reconciled at once ([`turns`]), and decide about them without I/O ([`status`], [`rollout`]).

use std::time::Duration;

pub mod context;
pub mod error;
pub mod followed_locks;
pub mod identities;
pub mod memory;
pub mod missing_locks;
pub mod reconcile;
pub mod removals;
pub mod rollout;
pub mod status;
pub mod triggers;
pub mod turns;
pub mod writer;

/// Time between two looks at what changes without an event: a workload in the middle of a rollout, a namespace that is
/// being deleted, contenders that a rotation waits for.
const LOOK: Duration = Duration::from_secs(15);
