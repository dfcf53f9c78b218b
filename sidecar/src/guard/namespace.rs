//! A PID namespace of the application's own, whose first process is the anchor.
//!
//! The kernel kills all that is in it when its first process ends, and says that this has ended only
//! once nothing else is left (`zap_pid_ns_processes`): to see it gone is the proof. `kill(-1)` of the
//! first process reaches all others in one step, also what is being forked.
//!
//! `/proc` has to show the same numbers as `getpid`, so the application gets one of its own, and for
//! that a mount namespace: it sees what is mounted outside later on, and what it mounts itself stays
//! inside.

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Signal, WaitOptions};

use crate::sys;

/// What the guard writes to the anchor: stop all others, let them go on.
pub(super) const STOP: u8 = b's';
pub(super) const CONTINUE: u8 = b'c';

/// Makes `/proc` that of the PID namespace. For its first process, which has a mount namespace of its
/// own as well.
///
/// # Errors
/// What `mount(2)` says.
pub(super) fn prepare() -> Result<(), Errno> {
    let inwards = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", inwards)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)
}

/// Makes a namespace as the application would get it, and lets it end.
///
/// # Errors
/// Why there is none.
pub(super) fn try_out() -> Result<(), String> {
    let cannot = |error: &dyn std::fmt::Display| {
        format!("no namespace of processes and mounts can be made ({error}): it takes CAP_SYS_ADMIN")
    };
    let child = match sys::fork_into_namespace().map_err(|error| cannot(&error))? {
        Some(child) => child,
        None => sys::exit_now(prepare().err().map_or(0, |error| error.raw_os_error() as u8)),
    };
    let (_, status) = rustix::process::waitpid(Some(child), WaitOptions::empty())
        .map_err(|error| cannot(&error))?
        .ok_or_else(|| cannot(&"it did not end"))?;
    match status.exit_status() {
        Some(0) => Ok(()),
        Some(errno) => Err(cannot(&Errno::from_raw_os_error(errno))),
        None => Err(cannot(&"it was killed")),
    }
}

/// What the first process does that the guard asks for. All other processes get the signal, but not the first process
/// itself (`kill(2)`).
pub(super) fn obey(order: u8) {
    let signal = match order {
        STOP => Signal::STOP,
        CONTINUE => Signal::CONT,
        _ => return,
    };
    sys::signal_everybody(signal.as_raw());
}
