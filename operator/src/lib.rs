//! The operator of Lockkeeper.
//!
//! It maintains the locks' nodes and rights in ZooKeeper ([`zookeeper`]), keeps a picture of all queues
//! ([`zookeeper::queues`]), and brings the cluster to what each `DistributedLock` asks for. Where it is told to, it
//! removes contenders of machines that were powered off ([`fencing`]).

pub mod addresses;
pub mod admin;
pub mod admission;
pub mod args;
pub mod changes;
pub mod controller;
pub mod fencing;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod identity;
pub mod kubernetes;
pub mod lock_key;
pub mod metrics;
pub mod problem;
pub mod run;
pub mod signals;
pub mod uninstall;
pub mod zookeeper;
