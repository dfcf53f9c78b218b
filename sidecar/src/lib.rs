//! The binary `lockkeeper`: keeper, guard and command line of one lock.

// Without these features, nothing outside reaches what they export.
#![cfg_attr(all(feature = "simulation", feature = "fuzzing"), warn(unreachable_pub))]

pub mod access;
pub mod admin;
pub mod args;
pub mod client;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod guard;
pub mod install;
mod keeper;
mod lease_env;
pub mod link;
pub mod metrics;
pub mod peer;
pub mod probes;
mod process;
pub mod remote;
pub mod run;
pub mod sidecar;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod socket;
mod socket_file;
mod sys;
pub mod time_namespace;
pub mod view;

/// What comes before all else: a keeper hides, since other processes of its user may wait for it to start.
pub fn prepare() {
    if process::is_keeper() {
        // It fails again, and is told, where the keeper begins.
        let _ = process::hide();
    }
}
