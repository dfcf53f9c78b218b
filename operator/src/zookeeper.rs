//! The ensembles: what the operator knows of them and does in them. One is its own, the others are named by locks.

pub mod allowed_hosts;
pub mod children;
pub mod client;
pub mod direct;
pub mod ensemble;
pub mod ensemble_id;
pub mod foreign;
pub mod leader;
pub mod nodes;
pub mod paths;
pub mod queues;
pub mod reachability;
pub mod sandbox;
pub mod sandboxed;
