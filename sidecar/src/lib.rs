//! The binary `lockkeeper`: keeper, guard and command line of one lock.

pub mod access;
pub mod admin;
pub mod args;
pub mod client;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod guard;
pub mod install;
pub mod keeper;
pub mod lease_env;
pub mod link;
pub mod metrics;
pub mod peer;
pub mod probes;
mod process;
pub mod run;
pub mod sidecar;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod socket;
mod socket_file;
mod sys;
pub mod time_namespace;
pub mod view;
