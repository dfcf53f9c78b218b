//! A control group of the application's own: version 2, below the group that the guard is in.
//!
//! The kernel kills (`cgroup.kill`, Linux 5.14) and freezes (`cgroup.freeze`, 5.2) a group with all
//! that is below it in one step, also what is being forked (Documentation/admin-guide/cgroup-v2.rst).
//! No controller is needed, so the group has none: limits stay those of the groups above. All of its
//! files are opened beforehand; on the way to a kill nothing is opened and no memory asked for.
//!
//! A process that may write to the groups above (root, the user to whom a subtree was delegated) can leave the group,
//! so the guard also looks for descendants outside of it.

pub(super) mod place;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use lockkeeper_lock::BootInstant;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use super::lines::Lines;
use super::processes::open_in;
use crate::sys;

/// Longer than what `cgroup.events` says: a few words and numbers.
const EVENTS_BUFFER: usize = 256;

/// The group. Its end removes it: by then it has to be empty.
#[derive(Debug)]
pub(super) struct Group {
    /// Of the guard itself.
    parent: OwnedFd,
    name: CString,
    /// Its path in `/proc/PID/cgroup`.
    path: Vec<u8>,
    /// Its directory, until the first application has been started.
    unused: Option<OwnedFd>,
    procs: OwnedFd,
    freeze: OwnedFd,
    killer: GroupKiller,
}

/// What it takes to kill a group, and to see that nothing is left in it: for the guard, the anchor, and a keeper whose
/// guard was killed.
#[derive(Debug)]
pub(super) struct GroupKiller {
    pub(super) kill: OwnedFd,
    pub(super) events: OwnedFd,
}

/// What `cgroup.events` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// A process is in it, or below it, that has not ended.
    pub populated: bool,
    /// Nothing in it can run.
    pub frozen: bool,
}

impl Group {
    /// Makes the group, and lets a process go in.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn make() -> Result<Self, String> {
        let own = place::own()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(&own.directory, flags, Mode::empty())
            .map_err(|error| format!("{} cannot be opened: {error}", own.directory.display()))?;
        let name = format!(
            "lockkeeper-{}-{:x}",
            rustix::process::getpid(),
            BootInstant::now().as_nanos()
        );
        rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o755)).map_err(|error| {
            format!(
                "no group can be made in {} ({error}): it takes root or a subtree that was delegated to this user \
                 (systemd: Delegate=yes)",
                own.directory.display()
            )
        })?;
        let separator = if own.path.ends_with('/') { "" } else { "/" };
        let path = format!("{}{separator}{name}", own.path).into_bytes();
        let mut group = Self::open(&parent, &name)
            .and_then(|[directory, procs, kill, freeze, events]| {
                Ok(Self {
                    parent: parent.try_clone().map_err(|error| error.to_string())?,
                    name: CString::new(name.clone()).map_err(|error| error.to_string())?,
                    path,
                    unused: Some(directory),
                    procs,
                    freeze,
                    killer: GroupKiller { kill, events },
                })
            })
            .inspect_err(|_| {
                let _ = rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR);
            })?;
        group.try_out()?;
        Ok(group)
    }

    fn open(parent: &OwnedFd, name: &str) -> Result<[OwnedFd; 5], String> {
        let open = |file: &str, flags| {
            rustix::fs::openat(
                parent,
                format!("{name}/{file}"),
                flags | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(|error| match error {
                Errno::NOENT => format!("the kernel has no {file} (cgroup.kill came with Linux 5.14)"),
                error => format!("{file} of a new group cannot be opened: {error}"),
            })
        };
        Ok([
            open(".", OFlags::RDONLY | OFlags::DIRECTORY)?,
            open("cgroup.procs", OFlags::WRONLY)?,
            open("cgroup.kill", OFlags::WRONLY)?,
            open("cgroup.freeze", OFlags::WRONLY)?,
            open("cgroup.events", OFlags::RDONLY)?,
        ])
    }

    /// Puts processes into the group, in the ways of the applications later.
    fn try_out(&mut self) -> Result<(), String> {
        let cannot =
            |error: &dyn std::fmt::Display| format!("no process can be put into a new group: {error}");
        let enter = || match sys::fork()? {
            None => sys::exit_now(self.enter().err().map_or(0, |error| error.raw_os_error() as u8)),
            child => Ok(child),
        };
        match status(enter).map_err(|error| cannot(&error))? {
            Some(0) => {}
            Some(errno) => return Err(cannot(&Errno::from_raw_os_error(errno))),
            None => return Err(cannot(&"it was killed")),
        }
        self.unused.take_if(|directory| {
            let fork = || match sys::fork_into_group(directory.as_fd())? {
                None => sys::exit_now(0),
                child => Ok(child),
            };
            !matches!(status(fork), Ok(Some(0)))
        });
        self.state().map(|_| ()).ok_or_else(|| {
            "cgroup.events of a new group does not say whether it is populated and frozen".to_owned()
        })
    }

    /// Forks a child that is in the group before it does anything else. `None` is the child.
    ///
    /// # Errors
    /// When it cannot be forked, or, in the child, cannot be moved.
    pub(crate) fn fork(&self) -> io::Result<Option<Pid>> {
        if let Some(Ok(forked)) = self
            .unused
            .as_ref()
            .map(|group| sys::fork_into_group(group.as_fd()))
        {
            return Ok(forked);
        }
        let forked = sys::fork()?;
        if forked.is_none() {
            self.enter()?;
        }
        Ok(forked)
    }

    /// An application has been started in it. The next ones move into the group: Linux 6.18 kills a child at once that is
    /// forked into a group which was killed before (it compares how often the groups of parent and child were killed:
    /// `cgroup_post_fork` of kernel/cgroup/cgroup.c).
    pub(crate) fn used(&mut self) {
        self.unused = None;
    }

    /// Moves the calling process into the group.
    fn enter(&self) -> Result<(), Errno> {
        rustix::io::write(&self.procs, b"0").map(drop)
    }

    /// Kills all that is in it, frozen or not.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        self.killer.kill()
    }

    /// The same for another process.
    ///
    /// # Errors
    /// When there is no room for more descriptors.
    pub(crate) fn killer(&self) -> io::Result<GroupKiller> {
        Ok(GroupKiller {
            kill: self.killer.kill.try_clone()?,
            events: self.killer.events.try_clone()?,
        })
    }

    /// Freezes or thaws all processes in it. [`Group::state`] shows when that has taken effect.
    pub(crate) fn freeze(&self, frozen: bool) -> Result<(), Errno> {
        let word = if frozen { b"1" } else { b"0" };
        rustix::io::write(&self.freeze, word).map(drop)
    }

    /// What is in it now; `None` when that cannot be read.
    pub(crate) fn state(&self) -> Option<State> {
        self.killer.state().ok().flatten()
    }

    /// Whether a process is in it, or below it.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(crate) fn has(&self, proc: &OwnedFd, pid: Pid, lines: &mut Lines) -> Result<bool, Errno> {
        let file = open_in(proc, format_args!("{pid}/cgroup"))?;
        lines.any(&file, |line| {
            // cgroups(7): the hierarchy of version 2 has the number 0 and no controllers.
            line.strip_prefix(b"0::")
                .and_then(|path| path.strip_prefix(&self.path[..]))
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    /// Removes it, if it is empty.
    pub(crate) fn remove(&self) {
        let _ = rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }

    /// What a process needs to [`Group::kill`] and [`Group::remove`].
    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.parent.as_raw_fd(), self.killer.kill.as_raw_fd()]
    }
}

/// Waits for a child. Its exit code; `None` when it was killed.
fn status(fork: impl FnOnce() -> io::Result<Option<Pid>>) -> io::Result<Option<i32>> {
    let child = fork()?;
    let ended = rustix::process::waitpid(child, WaitOptions::empty())?;
    let (_, status) = ended.ok_or(io::ErrorKind::NotFound)?;
    Ok(status.exit_status())
}

impl GroupKiller {
    /// Kills all that is in the group, frozen or not.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        rustix::io::write(&self.kill, b"1").map(drop)
    }

    /// Whether nothing is in the group any more, nor below it. What cannot be read is not known to be empty; a group
    /// that was removed was empty.
    pub(crate) fn is_empty(&self) -> bool {
        match self.state() {
            Ok(state) => state.is_some_and(|state| !state.populated),
            Err(error) => error == Errno::NODEV,
        }
    }

    fn state(&self) -> Result<Option<State>, Errno> {
        let mut buffer = [0; EVENTS_BUFFER];
        let len = rustix::io::pread(&self.events, &mut buffer, 0)?;
        Ok(State::parse(&buffer[..len]))
    }
}

impl State {
    pub(crate) fn parse(events: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(events).ok()?;
        let flag = |name: &str| {
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            match value {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            }
        };
        Some(Self {
            populated: flag("populated")?,
            frozen: flag("frozen")?,
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}
