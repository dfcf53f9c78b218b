//! The files of a process in `/proc`, read without asking for memory.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::Pid;

use super::process::Process;

/// `/proc/PID/stat` is shorter than this up to the last field that is read, the 22nd: a name of up
/// to 64 bytes and 20 numbers of up to 20 digits.
const STAT_BUFFER: usize = 512;

pub(super) fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

pub(super) fn pid_of(name: &CStr) -> Option<Pid> {
    let name = name.to_str().ok()?;
    Pid::from_raw(name.parse().ok().filter(|pid| *pid > 0)?)
}

pub(super) fn stat(proc: &OwnedFd, pid: Pid) -> Result<Process, Errno> {
    read_stat(proc, pid, format_args!("{pid}/stat"))
}

fn read_stat(proc: &OwnedFd, pid: Pid, file: std::fmt::Arguments<'_>) -> Result<Process, Errno> {
    let file = open_in(proc, file)?;
    let mut buffer = [0; STAT_BUFFER];
    let len = rustix::io::read(&file, &mut buffer)?;
    Process::parse(pid, &buffer[..len]).ok_or(Errno::INVAL)
}

/// Whether this error of a file of a process means that the process has ended. Everything else (no descriptor, no
/// memory, no right) says nothing about the process.
pub(in crate::guard) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::SRCH)
}

/// Room for the longest path that is opened in `/proc`: two numbers of seven digits, `task`, a name.
const PATH_BUFFER: usize = 64;

/// Opens a file of a process in `/proc`, by its path from there.
///
/// # Errors
/// What `open(2)` says; see [`is_gone`].
pub(in crate::guard) fn open_in(proc: &OwnedFd, file: std::fmt::Arguments<'_>) -> Result<OwnedFd, Errno> {
    open_as(proc, file, OFlags::RDONLY | OFlags::CLOEXEC)
}

fn open_as(proc: &OwnedFd, file: std::fmt::Arguments<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    use std::io::Write;
    let mut path = [0; PATH_BUFFER];
    let mut rest = &mut path[..];
    write!(rest, "{file}\0").map_err(|_| Errno::NAMETOOLONG)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::NAMETOOLONG)?;
    rustix::fs::openat(proc, path, flags, Mode::empty())
}

/// Calls `visit` with each thread of a process until it says true, and says whether it did.
///
/// # Errors
/// When not all threads could be listed.
pub(in crate::guard) fn any_thread(
    proc: &OwnedFd,
    pid: Pid,
    buffer: &mut [MaybeUninit<u8>],
    mut visit: impl FnMut(Pid) -> Result<bool, Errno>,
) -> Result<bool, Errno> {
    let tasks = open_as(proc, format_args!("{pid}/task"), directory_flags())?;
    let mut directory = RawDir::new(tasks.as_fd(), buffer);
    while let Some(entry) = directory.next() {
        if let Some(thread) = pid_of(entry?.file_name())
            && visit(thread)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn all_threads_are_stopped(proc: &OwnedFd, pid: Pid, buffer: &mut [MaybeUninit<u8>]) -> bool {
    let runs = any_thread(proc, pid, buffer, |thread| {
        match read_stat(proc, thread, format_args!("{pid}/task/{thread}/stat")) {
            Ok(thread) => Ok(!thread.main_thread_is_stopped()),
            Err(error) if is_gone(error) => Ok(false),
            Err(error) => Err(error),
        }
    });
    runs == Ok(false)
}
