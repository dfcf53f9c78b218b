//! What the operator reads from the API server and keeps in memory, and how much of it at most.
//!
//! This module does not know the locks in ZooKeeper.

pub mod answers;
pub mod cluster_id;
pub mod events;
pub mod names;
pub mod objects;
pub mod pods;
pub mod reader;
