//! Faults of processes, and floods from other hosts. [`Ensemble::cut`](crate::Ensemble::cut) has the faults
//! of connections.

use std::io;
use std::process::Command;

use rustix::process::{Pid, Signal};

mod flood;
mod rationing;

pub use flood::{Flood, Probed, probe};
pub use rationing::Rationing;

/// Stops a process (SIGSTOP): it keeps its connections, and runs no instruction until [`resume`].
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

/// Lets a program run as on a kernel before Linux 6.5, which does not tell which process has connected
/// (`SO_PEERPIDFD`).
pub fn hide_peer_pidfd(command: &mut Command) {
    crate::sys::refuse_socket_option(command, libc::SO_PEERPIDFD);
}

/// Kills a process (SIGKILL).
///
/// # Errors
/// When there is no such process.
pub fn kill(pid: Pid) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid, Signal::KILL)?)
}
