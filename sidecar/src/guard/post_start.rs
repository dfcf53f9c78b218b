//! The hook after each start of the application, where that is a command (`lifecycle.postStart.exec`).
//!
//! A kubelet executes it once, when the container starts, and waits for it before it does anything else
//! for the pod; but the container waits for the lock then. So the kubelet's command only stores the hook in a file,
//! and the guard executes it after each start of the application, as a part of that: under the lock, and ended with
//! it. The file is beside the guard's socket, in a directory that only the keeper and the guarded container see; and
//! both commands run as the container's user anyway.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lockkeeper_daemon::exit::{Exit, Failure};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Pid;

use super::command::resolve_command;
use super::processes::Processes;
use crate::sys::Program;

/// Longest command, in bytes: that of execve(2) with the default limit of the stack, a quarter of 8 MiB.
const LONGEST_HOOK: u64 = 2 << 20;

/// Where the hook for the guard at a socket is.
fn file(guard_socket: &Path) -> PathBuf {
    guard_socket.with_file_name("post-start")
}

/// When the first process of this container was started, which tells it from that of another one: the
/// file outlives a container.
fn container() -> io::Result<String> {
    match Processes::open()?.started(Pid::INIT) {
        Some(started) => Ok(started.to_string()),
        None => Err(io::Error::other("/proc/1/stat cannot be read")),
    }
}

/// Stores the hook for the guard of this container.
///
/// # Errors
/// When the first process of the container is no guard, and when the file cannot be written.
pub(crate) fn keep(guard_socket: &Path, command: &[OsString]) -> Result<(), Failure> {
    let name = |of: &str| std::fs::read(format!("/proc/{of}/comm")).ok();
    if name("1") != name("self") {
        return Err(Failure::usage(
            "the first process of this container is not `lockkeeper guard`, so nothing would execute the hook after \
             a start of the application",
        ));
    }
    let path = file(guard_socket);
    write(&path, command).map_err(|error| {
        let path = path.display();
        Failure::new(
            Exit::CannotCreate,
            format!("cannot leave the hook for the guard in {path}: {error}"),
        )
    })
}

fn write(path: &Path, command: &[OsString]) -> io::Result<()> {
    // Each word ends with a zero byte, as in /proc/<pid>/cmdline: none can contain one.
    let mut words = container()?.into_bytes();
    words.push(0);
    for word in command {
        words.extend_from_slice(word.as_bytes());
        words.push(0);
    }
    let new = path.with_extension("new");
    std::fs::write(&new, words)?;
    std::fs::rename(&new, path)
}

/// Reads such a file. The application may have put something else in its place, which must not hold the guard up: a pipe
/// that nobody writes into, a link into a file system that hangs, a file without an end.
///
/// # Errors
/// Those of the system: the keeper is told their number.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Errno::INVAL.into());
    }
    let mut words = Vec::new();
    file.take(LONGEST_HOOK + 1).read_to_end(&mut words)?;
    if words.len() as u64 > LONGEST_HOOK {
        return Err(Errno::TOOBIG.into());
    }
    Ok(words)
}

/// The command in such a file, if it is for the container that was started then.
pub(super) fn parse(words: &[u8], container: &str) -> Option<Vec<OsString>> {
    let mut words = words
        .strip_suffix(&[0])
        .unwrap_or(words)
        .split(|byte| *byte == 0)
        .map(|word| OsStr::from_bytes(word).to_owned());
    words.next().filter(|word| **word == *container)?;
    Some(words.collect())
}

/// The guard's side.
#[derive(Debug)]
pub(super) struct PostStart {
    path: PathBuf,
    container: String,
    environment: Vec<OsString>,
}

impl PostStart {
    /// For a guard that is the first process of its container.
    pub(crate) fn new(guard_socket: &Path, environment: Vec<OsString>) -> io::Result<Self> {
        Ok(Self {
            path: file(guard_socket),
            container: container()?,
            environment,
        })
    }

    /// The words of the hook, if there is one. To read them takes no file system but that of the guard's socket.
    pub(crate) fn command(&self) -> io::Result<Option<Vec<OsString>>> {
        let words = match read(&self.path) {
            Ok(words) => words,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(command) = parse(&words, &self.container) else {
            return Ok(None);
        };
        Ok((!command.is_empty()).then_some(command))
    }

    /// A command of [`PostStart::command`], ready to be executed. For the process that executes it alone: it looks
    /// the program up in the user's file systems, one of which may hang.
    pub(crate) fn program(&self, command: Vec<OsString>) -> io::Result<Program> {
        let name = &command[0];
        let path = resolve_command(name).map_or_else(|_| name.clone(), PathBuf::into_os_string);
        Program::new(path, command, self.environment.clone())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_the_application_puts_in_the_place_of_the_hook_never_holds_its_guard_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        std::os::unix::fs::symlink("/dev/zero", at("link")).expect("a link");
        std::fs::create_dir(at("folder")).expect("a folder");
        let long = std::fs::File::create(at("long")).expect("a file");
        long.set_len(LONGEST_HOOK + 1).expect("a long file");
        for name in ["pipe", "link", "folder", "long"] {
            assert!(read(&at(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_hook_is_read_as_it_was_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("post-start");
        let command = ["touch", "a b"].map(OsString::from);
        write(&path, &command).expect("written");
        let words = read(&path).expect("read");
        let container = container().expect("the first process");
        assert_eq!(parse(&words, &container), Some(command.to_vec()));
    }
}
