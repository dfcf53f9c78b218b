//! The operator of Lockkeeper.
//!
//! It maintains the locks' nodes and rights in ZooKeeper ([`zookeeper`]), keeps a picture of all queues
//! ([`zookeeper::queues`]), and brings the cluster to what each `DistributedLock` asks for. Where it is told to, it
//! removes contenders of machines that were powered off ([`node_fencing`]).

// Without the feature, what only the module `fuzzing` shows would be reported.
#![cfg_attr(feature = "fuzzing", warn(unreachable_pub))]

pub mod addresses;
mod admin;
pub mod admission;
pub mod args;
pub mod controller;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod identity;
pub mod kubernetes;
mod leadership;
pub mod lock_key;
pub mod lock_metrics;
pub mod metrics;
mod node_fencing;
pub mod problem;
pub mod run;
mod signals;
pub mod uninstall;
pub mod work_queue;
pub mod zookeeper;
