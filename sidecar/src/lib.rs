//! The binary `lockkeeper`: keeper, guard and command line of one lock.

pub mod admin;
pub mod args;
pub mod client;
pub mod duration;
pub mod exit;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod guard;
pub mod http;
pub mod install;
pub mod keeper;
pub mod lease_env;
pub mod log;
pub mod metrics;
pub mod peer;
pub mod probes;
pub mod run;
pub mod sidecar;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod socket;
mod sys;
pub mod time_namespace;
pub mod view;
