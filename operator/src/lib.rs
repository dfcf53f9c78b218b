//! The operator of Lockkeeper.
//!
//! It looks after the locks' nodes and rights in ZooKeeper ([`tree`]), keeps a picture of all queues
//! ([`mirror`]), and brings the cluster to what each `DistributedLock` asks for.

pub mod identity;
pub mod inject;
pub mod layout;
pub mod mirror;
pub mod picture;
pub mod rollout;
pub mod tree;
