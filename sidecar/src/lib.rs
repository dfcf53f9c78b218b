//! The binary `lockkeeper`: keeper, guard and command line of one lock.

pub mod admin;
pub mod args;
pub mod client;
pub mod duration;
pub mod exit;
pub mod guard;
mod http;
pub mod install;
pub mod keeper;
pub mod lease_env;
pub mod log;
pub mod metrics;
pub mod probes;
pub mod run;
pub mod sidecar;
pub mod socket;
mod sys;
pub mod view;
