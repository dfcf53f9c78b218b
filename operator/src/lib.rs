//! The operator of Lockkeeper.
//!
//! It looks after the locks' nodes and rights in ZooKeeper ([`tree`]), keeps a picture of all queues
//! ([`mirror`]), and brings the cluster to what each `DistributedLock` asks for.

pub mod admin;
pub mod adopt;
pub mod answers;
pub mod args;
pub mod census;
pub mod certificates;
pub mod changes;
pub mod cluster;
pub mod context;
pub mod controller;
pub mod ensemble;
pub mod error;
pub mod events;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod identity;
pub mod image;
pub mod inject;
pub mod layout;
pub mod leader;
pub mod metrics;
pub mod mirror;
pub mod names;
pub mod others;
pub mod parts;
pub mod picture;
pub mod plugin;
pub mod pods;
pub mod reach;
pub mod rollout;
pub mod rotation;
pub mod run;
pub mod secrets;
pub mod session;
pub mod status;
pub mod tree;
pub mod turns;
pub mod uninstall;
pub mod way;
pub mod webhook;
