//! Finds the program of a command before the lock is asked for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lockkeeper_daemon::exit::Exit;
use rustix::fs::{Access, AtFlags, CWD};

/// Why a command cannot be started. The lock is not taken for it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error(
        "cannot run {0:?}: no such program{where_}; no lock was requested",
        where_ = if is_path(.0) { "" } else { " in any directory of PATH" }
    )]
    NotFound(OsString),
    /// There is a file, but it cannot be executed.
    #[error("cannot run {0:?}: it is not an executable file (chmod +x?); no lock was requested")]
    NotExecutable(PathBuf),
}

impl CommandError {
    /// How a shell would end for it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NotFound(_) => Exit::NotFound,
            Self::NotExecutable(_) => Exit::CannotExecute,
        }
    }
}

/// The file that `command` means: itself if it contains a slash, else the first executable file of
/// that name in the directories of `PATH`, as `execvp(3)` looks.
///
/// # Errors
/// When there is none, or none that this process may execute.
pub fn resolve_command(command: &OsStr) -> Result<PathBuf, CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    resolve_in(command, &path)
}

fn resolve_in(command: &OsStr, path: &OsStr) -> Result<PathBuf, CommandError> {
    if command.is_empty() {
        return Err(CommandError::NotFound(command.to_owned()));
    }
    if is_path(command) {
        let file = PathBuf::from(command);
        return if is_executable(&file) {
            Ok(file)
        } else if file.exists() {
            Err(CommandError::NotExecutable(file))
        } else {
            Err(CommandError::NotFound(command.to_owned()))
        };
    }
    let mut unusable = None;
    for directory in std::env::split_paths(path) {
        // An empty entry means the current directory.
        let file = if directory.as_os_str().is_empty() {
            Path::new(".").join(command)
        } else {
            directory.join(command)
        };
        if is_executable(&file) {
            return Ok(file);
        }
        if file.is_file() {
            unusable.get_or_insert(file);
        }
    }
    Err(unusable.map_or_else(
        || CommandError::NotFound(command.to_owned()),
        CommandError::NotExecutable,
    ))
}

fn is_path(command: &OsStr) -> bool {
    command.as_bytes().contains(&b'/')
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_command_is_found_where_a_shell_would_find_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let (first, second) = (directory.path().join("a"), directory.path().join("b"));
        for place in [&first, &second] {
            std::fs::create_dir(place).expect("made");
            std::fs::write(place.join("tool"), "#!/bin/sh\n").expect("written");
        }
        let path = std::env::join_paths([&first, &second]).expect("a path");
        let tool = OsStr::new("tool");
        let executable = |file: &Path| {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("changed");
        };

        assert_eq!(
            resolve_in(tool, &path),
            Err(CommandError::NotExecutable(first.join("tool")))
        );
        executable(&second.join("tool"));
        assert_eq!(resolve_in(tool, &path), Ok(second.join("tool")));
        executable(&first.join("tool"));
        assert_eq!(resolve_in(tool, &path), Ok(first.join("tool")));
        assert_eq!(
            resolve_in(OsStr::new("no-tool"), &path),
            Err(CommandError::NotFound("no-tool".into()))
        );
    }

    #[test]
    fn a_command_that_cannot_run_is_refused_with_the_exit_code_of_a_shell() {
        let missing = resolve_command(OsStr::new("/no/such/file")).expect_err("not there");
        assert_eq!(missing.exit(), Exit::NotFound);
        assert_eq!(
            missing.to_string(),
            "cannot run \"/no/such/file\": no such program; no lock was requested"
        );
        let directory = resolve_command(OsStr::new("/tmp")).expect_err("a directory");
        assert_eq!(directory.exit(), Exit::CannotExecute);
        assert_eq!(
            resolve_command(OsStr::new("")).expect_err("empty").exit(),
            Exit::NotFound
        );
    }
}
