//! The files of the repository.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The folder of the repository.
pub fn root() -> PathBuf {
    normal(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// All files of the repository that git knows or would add, by their path in it.
///
/// # Panics
/// When git cannot list them.
pub fn files() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let names = String::from_utf8(listed.stdout).expect("names in UTF-8");
    let files = names.lines().map(PathBuf::from);
    files.filter(|file| root().join(file).is_file()).collect()
}

/// The text of a file of the repository.
///
/// # Panics
/// When it cannot be read.
pub fn read(file: &Path) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A path without `.` and `..`, without a look at the file system.
pub fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}
