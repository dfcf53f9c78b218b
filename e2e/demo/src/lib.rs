//! The demonstration: workers and pods under one lock on real servers, under faults.
//!
//! It computes its results from the records of the guarded programs and from the deletions that the
//! ensemble's leader saw, as the tests do.

#![warn(unreachable_pub)]

mod acts;
mod console;
mod cuts;
mod interrupted;
mod nodes;
mod options;
mod outcome;
mod pictures;
mod pods;
mod results;
mod run;
mod stage;
mod summary;
mod waiting;
mod words;
mod workers;

use interrupted::interrupted_or;
pub use options::{Act, Ending, Options};

/// Runs the demonstration on standard output.
///
/// It may replace this process at its very start: see [`lockkeeper_testbed::Network::new`].
///
/// # Errors
/// When something is missing on this machine, or a step did not happen within a minute.
pub fn run(options: &Options) -> anyhow::Result<Ending> {
    match options.act {
        Act::Run => workers::play(options),
        Act::Kubernetes => match nodes::play(options) {
            Err(error) => interrupted_or(error),
            ending => ending,
        },
    }
}
