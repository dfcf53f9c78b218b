//! What the guard reads of the kernel's files, for the crate `fuzz`.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;

use super::cgroup::{self, State};
use super::container;
use super::lines::Lines;
use super::mounts::{Mount, decoded};
use super::post_start;
use super::processes::Process;

/// All lines of a file, as the guard sees them.
///
/// # Errors
/// As [`Lines::any`].
pub fn lines(file: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut seen = Vec::new();
    Lines::new().any(file, |line| {
        seen.push(line.to_vec());
        false
    })?;
    Ok(seen)
}

/// Parent, threads and start of the process in a `stat`.
pub fn stat(stat: &[u8]) -> Option<(i32, u32, u64)> {
    Process::parse(rustix::process::Pid::INIT, stat).map(|process| process.fields())
}

/// Root, place and kind of the mount in a line of `mountinfo`.
pub fn mount(line: &[u8]) -> Option<[Vec<u8>; 3]> {
    Mount::parse(line).map(|mount| [decoded(mount.root), decoded(mount.point), mount.kind.to_vec()])
}

/// Pod and container of a line of `mountinfo`.
pub fn pod_and_container(line: &[u8]) -> Option<(&[u8], &[u8])> {
    container::pod_and_container(line)
}

/// Where the own control group is, and its path, by `mountinfo` and `cgroup`.
///
/// # Errors
/// As `cgroup::place::place`.
pub fn place(mountinfo: &str, cgroup: &str) -> Result<(PathBuf, String), String> {
    cgroup::place::place(mountinfo, cgroup).map(|place| (place.directory, place.path))
}

/// Whether `other` counts as in the container of `member` for a guard in `own`; each is a file `cgroup`.
pub fn is_beside(own: &OwnedFd, member: &OwnedFd, other: &OwnedFd) -> Option<bool> {
    let mut lines = Lines::new();
    let mut groups = container::Groups::beside(own, member, &mut lines)?;
    groups.is_strange(other, &mut lines).ok()?;
    groups.learn(member, &mut lines).ok()?;
    groups.has(other, &mut lines).ok()
}

/// What `cgroup.events` says: populated, frozen.
pub fn events(events: &[u8]) -> Option<(bool, bool)> {
    State::parse(events).map(|state| (state.populated, state.frozen))
}

/// The hook that was left for the container that was started then.
pub fn post_start(words: &[u8], container: &str) -> Option<Vec<OsString>> {
    post_start::parse(words, container)
}
