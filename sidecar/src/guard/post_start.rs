//! The hook after each start of the application, where that is a command (`lifecycle.postStart.exec`).
//!
//! A kubelet executes it once, when the container starts, and waits for it before it does anything else
//! for the pod; but the container waits for the lock then. So the kubelet's command only leaves the hook
//! in a file, and the guard executes it after each start of the application, as a part of that: under
//! the lock, and ended with it. The file is beside the guard's socket, in a directory that only the
//! keeper and the guarded container see; and both commands run as the container's user anyway.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::command::resolve_command;
use crate::exit::{Exit, Failure};
use crate::sys::Program;

/// Where the hook for the guard at a socket is.
fn file(guard_socket: &Path) -> PathBuf {
    guard_socket.with_file_name("post-start")
}

/// Leaves the hook for the guard.
///
/// # Errors
/// When the file cannot be written.
pub fn keep(guard_socket: &Path, command: &[OsString]) -> Result<(), Failure> {
    let path = file(guard_socket);
    // Each word ends with a zero byte, as in /proc/<pid>/cmdline: none can contain one.
    let mut words = Vec::new();
    for word in command {
        words.extend_from_slice(word.as_bytes());
        words.push(0);
    }
    let new = path.with_extension("new");
    std::fs::write(&new, words)
        .and_then(|()| std::fs::rename(&new, &path))
        .map_err(|error| {
            Failure::new(
                Exit::CannotCreate,
                format!(
                    "cannot leave the hook for the guard in {}: {error}",
                    path.display()
                ),
            )
        })
}

/// The guard's side.
#[derive(Debug)]
pub(super) struct PostStart {
    path: PathBuf,
    environment: Vec<OsString>,
}

impl PostStart {
    /// For a guard that has just begun: what is there is of a container before this one.
    pub fn new(guard_socket: &Path, environment: Vec<OsString>) -> Self {
        let path = file(guard_socket);
        let _ = std::fs::remove_file(&path);
        Self { path, environment }
    }

    /// The hook, ready to be executed, if there is one.
    pub fn program(&self) -> io::Result<Option<Program>> {
        let words = match std::fs::read(&self.path) {
            Ok(words) => words,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let command: Vec<_> = words
            .strip_suffix(&[0])
            .unwrap_or(&words)
            .split(|byte| *byte == 0)
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect();
        let path = resolve_command(&command[0]).map_or_else(
            |_| command[0].clone(),
            |path| OsString::from_vec(path.into_os_string().into_vec()),
        );
        Program::new(path, command, self.environment.clone()).map(Some)
    }
}
