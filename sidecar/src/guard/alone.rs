//! Whether a guard is the first process of its container.
//!
//! A guard that is not would stop only some of the processes there. In a pod that shares its process namespace no
//! container's first process has the number 1, so the control group decides: each container has its own, and
//! processes that are executed in it later (`kubectl exec`) join the same one.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

/// Checks that no process was in this container before this one.
///
/// # Errors
/// One sentence about the other process, or about why that cannot be seen.
pub(crate) fn check() -> Result<(), String> {
    if getpid() == Pid::INIT {
        return Ok(());
    }
    match neighbour() {
        Ok(None) => Ok(()),
        Ok(Some(pid)) => Err(format!(
            "`lockkeeper guard` is for the first process of a container, and process {pid} was in this one before \
             it: make it the container's command, in front of the application's"
        )),
        Err(error) => Err(format!(
            "`lockkeeper guard` is for the first process of a container, and it cannot see whether it is that: {error}"
        )),
    }
}

/// A process of the same control group that is not this one.
fn neighbour() -> io::Result<Option<Pid>> {
    // proc(5): readable for all users, unless `hidepid` hides other users' processes.
    let own = fs::read("/proc/self/cgroup")?;
    let mut sees_first = false;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw)
        else {
            continue;
        };
        if pid == getpid() {
            continue;
        }
        match fs::read(format!("/proc/{pid}/cgroup")) {
            Ok(group) if group == own => return Ok(Some(pid)),
            Ok(_) => sees_first |= pid == Pid::INIT,
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if sees_first {
        Ok(None)
    } else {
        Err(io::Error::other("/proc does not show all processes (hidepid?)"))
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| gone.contains(&code))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_guard_that_is_not_the_first_process_of_its_container_is_refused() {
        // Whatever else is in the control group of this test, this is.
        let mut other = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("spawned");
        let refused = check().expect_err("it is not alone");
        assert!(refused.contains("make it the container's command"), "{refused}");
        other.kill().expect("killed");
        other.wait().expect("reaped");
    }
}
