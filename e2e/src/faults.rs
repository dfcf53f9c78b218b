//! What the harness breaks, by hand or by a [`Plan`] that a seed makes and can make again.
//!
//! Cuts are made by [`Ensemble::cut`](crate::Ensemble::cut); this module has the faults of processes,
//! and puts everything on a schedule.

use std::io;

use rustix::process::{Pid, Signal};

mod flood;
mod plan;
mod rationing;
mod run;

pub use flood::{Flood, Probed, probe};
pub use plan::{Fault, Plan, Role, SEED_VARIABLE, Shape, Step, seed_from_environment};
pub use rationing::Rationing;
pub use run::{Event, Workers};

/// Stops a process (SIGSTOP): it keeps its connections and runs no instruction until [`resume`].
///
/// # Errors
/// When there is no such process.
pub fn stop(pid: Pid) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid, Signal::STOP)?)
}

/// Lets a stopped process go on (SIGCONT).
///
/// # Errors
/// When there is no such process.
pub fn resume(pid: Pid) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid, Signal::CONT)?)
}

/// Kills a process (SIGKILL).
///
/// # Errors
/// When there is no such process.
pub fn kill(pid: Pid) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid, Signal::KILL)?)
}
