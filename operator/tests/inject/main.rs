//! The injection of a pod, which is pure: what goes in, and what comes out.

mod again;
mod cluster;
mod command;
mod golden;
mod kept;
mod refusing;
mod sidecar;
mod signal;
