//! The ensembles: what the operator knows of them and does in them. One is its own, the others are named by locks.

pub(crate) mod allowed_hosts;
pub mod children;
pub mod client;
pub(crate) mod direct;
pub mod ensemble;
pub mod ensemble_id;
pub(crate) mod foreign;
pub mod nodes;
pub mod paths;
pub mod queues;
pub mod reachability;
pub mod sandbox;
pub mod sandboxed;
