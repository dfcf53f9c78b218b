//! Files that are fetched and built once, and kept in the user's cache directory.
//!
//! The name of each entry is a fingerprint of everything that it is made from. So a fresh clone on the same
//! machine finds the builds of an older one, and a changed file always gives a new entry.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File, TryLockError};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The file that marks an entry as complete.
const COMPLETE: &str = "complete";

/// `lockkeeper/NAME` in the user's cache directory (`XDG_CACHE_HOME`, or else `~/.cache`).
///
/// # Errors
/// When there is none, or it cannot be made.
pub(crate) fn directory(name: &str) -> anyhow::Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: there is no place to keep what is built")?;
    let directory = base.join("lockkeeper").join(name);
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// The entry `name` of a cache, built if it is not there. Several processes may call this at once: one
/// builds, and the others wait for it. An interrupted build leaves no entry.
///
/// # Errors
/// The error of `build`, which gets the path of the entry; there it finds the remains of an interrupted
/// build.
pub(crate) fn entry(
    cache: &Path,
    name: &str,
    build: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    if let Some(directory) = found(cache, name) {
        return Ok(directory);
    }
    let directory = cache.join(name);
    let complete = directory.join(COMPLETE);
    let lock = cache.join("lock");
    let lock = File::create(&lock).with_context(|| format!("cannot make {}", lock.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("Waiting for another process that builds in {}", cache.display());
            lock.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the cache"),
    }
    if !complete.exists() {
        build(&directory)?;
        File::create(&complete)?;
    }
    Ok(directory)
}

/// [`entry`] for a build that cannot use the remains of an interrupted one: it gets an empty folder.
///
/// # Errors
/// As [`entry`].
pub(crate) fn fresh_entry(
    cache: &Path,
    name: &str,
    build: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    entry(cache, name, |directory| {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir(directory)?;
        build(directory)
    })
}

/// The entry `name` of a cache, if it has been built.
pub(crate) fn found(cache: &Path, name: &str) -> Option<PathBuf> {
    let directory = cache.join(name);
    directory.join(COMPLETE).exists().then_some(directory)
}

/// A fingerprint of names and contents of files below `root`, and of everything else that affects the build.
/// The algorithm is not stable: a new compiler may give another fingerprint, which costs one more build.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn fingerprint(
    root: &Path,
    folders: &[&str],
    files: &[&str],
    rest: &[&str],
) -> anyhow::Result<String> {
    let mut files: Vec<_> = files.iter().map(|file| root.join(file)).collect();
    let mut directories: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(directory) = directories.pop() {
        for entry in
            fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.strip_prefix(root)?.hash(&mut hasher);
        fs::read(&file)
            .with_context(|| format!("cannot read {}", file.display()))?
            .hash(&mut hasher);
    }
    for part in rest {
        part.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_built_anew() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("src")).unwrap();
        fs::write(root.join("pom.xml"), "<project/>").unwrap();
        fs::write(root.join("src/A.java"), "class A {}").unwrap();
        let now = || fingerprint(root, &["src"], &["pom.xml"], &["17"]).unwrap();
        let before = now();
        assert_eq!(before, now());
        assert_ne!(
            before,
            fingerprint(root, &["src"], &["pom.xml"], &["21"]).unwrap()
        );
        fs::write(root.join("src/A.java"), "class A { }").unwrap();
        assert_ne!(before, now());
    }

    #[test]
    fn a_broken_build_leaves_no_entry_and_the_next_one_is_kept() {
        let cache = tempfile::tempdir().unwrap();
        let broken = entry(cache.path(), "tool", |entry| {
            fs::create_dir(entry)?;
            anyhow::bail!("no compiler")
        });
        assert_eq!(broken.unwrap_err().to_string(), "no compiler");
        let mut built = 0;
        for _ in 0..2 {
            entry(cache.path(), "tool", |_| {
                built += 1;
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(built, 1);
    }
}
