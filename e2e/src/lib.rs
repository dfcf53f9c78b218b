//! Tests of Lockkeeper on real ZooKeeper servers.
//!
//! An [`Ensemble`] is three real servers, each in a network namespace of its own, so that any two
//! machines can be cut off from one another ([`faults`]). A guarded program, `lockkeeper-recorder`,
//! writes down when it ran; the [`checker`] proves from those files that no two holders ran at one
//! moment, and [`timeline`] draws them.
//!
//! A [`Cluster`] is a real Kubernetes on this machine, for what runs in pods.
//!
//! Nothing here depends on the code under test: it is started as a program, and judged by what its
//! children wrote and by what the ensemble's leader saw.

pub mod binaries;
pub mod cache;
pub mod chain;
pub mod checker;
pub mod cluster;
pub mod demo;
pub mod ensemble;
pub mod faults;
pub mod histogram;
pub mod installation;
pub mod java;
pub mod network;
pub mod owner;
pub mod process;
pub mod record;
pub mod rivals;
pub mod space;
mod sys;
pub mod timeline;
pub mod trials;
pub mod worker;

pub use cluster::Cluster;
pub use ensemble::{Config, Ensemble};
pub use installation::Installation;
pub use network::{Host, Network, Unsupported};
pub use process::Process;
pub use space::Space;
pub use worker::Worker;
