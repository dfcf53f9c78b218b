//! Real ZooKeeper servers and a real Kubernetes on one machine, and the faults that break them.
//!
//! An [`Ensemble`] is three real servers, each in a network namespace of its own, so that any two machines
//! can be cut off from one another ([`Ensemble::cut`]). A [`Cluster`] is a real Kubernetes, for tests with
//! pods. A [`Machine`] has a real systemd. [`faults`] stops, starves, kills and floods.
//!
//! This crate knows nothing of the lock: it depends on none of the product's crates.

#![warn(unreachable_pub)]

pub mod binaries;
pub mod browser;
mod cache;
pub mod certificates;
pub mod clock;
pub mod cluster;
pub mod ensemble;
pub mod eventually;
pub mod faults;
pub mod foreign;
pub mod java;
pub mod machine;
pub mod network;
pub mod owner;
pub mod process;
pub mod shared;
mod sys;
mod unsupported;

pub use browser::Browser;
pub use cluster::Cluster;
pub use ensemble::{Config, Ensemble};
pub use machine::Machine;
pub use network::{Host, Network};
pub use process::Process;
pub use unsupported::Unsupported;
