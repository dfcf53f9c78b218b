//! What the operator reads from the API server and keeps in memory, and how much of it at most.
//!
//! This module does not know the locks in ZooKeeper.

pub(crate) mod answers;
pub(crate) mod cluster_id;
pub mod events;
pub(crate) mod names;
pub(crate) mod objects;
pub mod pods;
pub(crate) mod reader;
