//! The hook after each start of the application, where that is a command (`lifecycle.postStart.exec`).
//!
//! A kubelet executes it once, when the container starts, and waits for it before it does anything else
//! for the pod; but the container waits for the lock then. So the kubelet's command only stores the hook in a file,
//! and the guard executes it after each start of the application, as a part of that: under the lock, and ended with
//! it. The file is beside the guard's socket, in a directory that only the keeper and the guarded container see; and
//! both commands run as the container's user anyway.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lockkeeper_daemon::exit::{Exit, Failure};
use rustix::process::Pid;

use super::command::resolve_command;
use super::processes::Processes;
use crate::sys::Program;

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
        let words = match std::fs::read(&self.path) {
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
