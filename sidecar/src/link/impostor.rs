//! Who listens at the keeper's socket: a keeper is in another container than the guard.
//!
//! The folder of the socket is in a volume that the application's container mounts. While no keeper is there, a process
//! of the application can listen in its place, and grant without end. The kernel tells which process listens
//! (`SO_PEERCRED`, unix(7)). Nothing here asks for memory.

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::sys;

/// As much of `/proc/PID/cgroup` as is compared. Groups of version 2 are one line; runtimes give a container a path of
/// some hundred bytes in each hierarchy of version 1.
const GROUP_BYTES: usize = 4096;

/// Room for `/proc/`, a number of ten digits, and `/cgroup`.
const PATH_BYTES: usize = 32;

/// Whether the process that listens at the other end may be one of the guard's own container.
///
/// In a PID namespace of its own the guard is process 1, and each process that it sees there is of its container; a keeper
/// elsewhere has the number 0 (pid_namespaces(7)). Where containers share a namespace, each has a control group of its own.
/// What cannot be seen counts as a neighbour.
pub(super) fn may_be_a_neighbour(socket: BorrowedFd<'_>) -> bool {
    let Ok(pid) = sys::peer_pid(socket) else {
        return true;
    };
    match Pid::from_raw(pid) {
        None => false,
        // The guard listens nowhere. gVisor answers each process with its own number, so that nothing is known there.
        Some(pid) if pid == getpid() => false,
        Some(_) if getpid() == Pid::INIT => true,
        Some(pid) => is_in_own_group(pid).unwrap_or(true),
    }
}

fn is_in_own_group(pid: Pid) -> Result<bool, Errno> {
    let (mut own, mut other) = ([0; GROUP_BYTES], [0; GROUP_BYTES]);
    Ok(is_within(group(pid, &mut other)?, group(getpid(), &mut own)?))
}

/// Whether a process with the groups `inner` is in those of `outer`, or below them, in each hierarchy. (The guard may have made
/// a group of the application's own below its own.)
fn is_within(inner: &[u8], outer: &[u8]) -> bool {
    let lines = |groups| <[u8]>::split(groups, |byte| *byte == b'\n');
    let is_below = |(inner, outer): (&[u8], &[u8])| {
        let outer = outer.strip_suffix(b"/").unwrap_or(outer);
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with(b"/") && !rest.starts_with(b"/..")))
    };
    lines(inner).count() == lines(outer).count() && lines(inner).zip(lines(outer)).all(is_below)
}

fn group(pid: Pid, buffer: &mut [u8; GROUP_BYTES]) -> Result<&[u8], Errno> {
    let mut path = [0; PATH_BYTES];
    write!(&mut path[..], "/proc/{pid}/cgroup\0").map_err(|_| Errno::NAMETOOLONG)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::NAMETOOLONG)?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let read = rustix::io::read(&file, &mut buffer[..])?;
    Ok(&buffer[..read])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_of_the_container_in_its_group_and_in_each_below_it_and_in_no_other() {
        for (inner, outer, is) in [
            ("0::/\n", "0::/\n", true),
            ("0::/lockkeeper-7-1\n", "0::/\n", true),
            ("0::/../sidecar\n", "0::/\n", false),
            ("0::/..\n", "0::/\n", false),
            ("0::/pod/app/lockkeeper-7-1\n", "0::/pod/app\n", true),
            ("0::/pod/app2\n", "0::/pod/app\n", false),
            ("0::/pod\n", "0::/pod/app\n", false),
            ("2:cpu:/a\n1:pids:/\n", "2:cpu:/a\n1:pids:/\n", true),
            ("2:cpu:/b\n1:pids:/\n", "2:cpu:/a\n1:pids:/\n", false),
            ("2:cpu:/a\n", "2:cpu:/a\n1:pids:/\n", false),
        ] {
            assert_eq!(
                is_within(inner.as_bytes(), outer.as_bytes()),
                is,
                "{inner:?} {outer:?}"
            );
        }
    }
}
