//! Lockkeeper as users run it, on the testbed: a [`Worker`] of `lockkeeper run`, the processes of a [`Pod`]
//! without a cluster, an [`Installation`] on Kubernetes, a [`Space`] in it for guarded pods, and operators as
//! processes (`beside`, with the feature `kube`).
//!
//! The programs under test run as processes; this crate does not link them. Tests judge them by the records
//! of their children, by the deletions that the ensemble's leader saw ([`DeletionWatch`]), and by the objects
//! of the API server.

#![warn(unreachable_pub)]

#[cfg(feature = "kube")]
pub mod beside;
pub mod binaries;
pub mod busybox_image;
pub mod chart;
mod deletions;
pub mod installation;
pub mod nobody;
pub mod page;
pub mod pod;
pub mod shell;
pub mod space;
pub mod worker;
pub mod zookeeper_image;

pub use deletions::DeletionWatch;
pub use installation::Installation;
pub use pod::Pod;
pub use shell::Shell;
pub use space::Space;
pub use worker::Worker;
