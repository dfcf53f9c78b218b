//! A user without any right, who is neither root nor the keeper's.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::binaries;

/// The number of that user, and of its group.
pub const USER: u32 = 65534;

/// A command that becomes that user, and executes what follows. Only root can.
pub const AS_NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
];

/// Lets users other than the owner have `mode` of a file or a directory.
///
/// # Errors
/// Those of the file system.
pub fn open(path: &Path, mode: u32) -> anyhow::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Copies a program to where that user can execute it.
///
/// # Errors
/// Those of the file system.
pub fn copy(program: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    fs::copy(program, to).with_context(|| format!("cannot copy {}", program.display()))?;
    open(to, mode)
}

/// Makes a directory in `parent` that this user reaches and may write to, with a copy of `lockkeeper`: directory, program.
///
/// # Errors
/// Those of the file system, and when there is no binary.
pub fn room(parent: &Path, name: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
    let directory = parent.join(name);
    fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    open(parent, 0o755)?;
    open(&directory, 0o777)?;
    let program = directory.join("lockkeeper");
    copy(&binaries::lockkeeper()?, &program, 0o755)?;
    Ok((directory, program))
}
