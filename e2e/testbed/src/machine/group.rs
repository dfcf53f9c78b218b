//! The control group of a machine: one of version 2, below the root of this machine's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::Unsupported;
use crate::owner::Owner;
use crate::process::wait_for;

/// Before the mark of the owner in the names of all groups.
const PREFIX: &str = "lockkeeper-machine.";

/// For processes that are killed.
const BOUND: Duration = Duration::from_secs(30);

/// A group, which exists while its machine runs.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// The group of a machine. Those of harnesses that were killed are removed.
    ///
    /// # Errors
    /// When there are no control groups of version 2.
    pub(super) fn make(name: &str) -> anyhow::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(place))
        });
        let root = root.ok_or_else(|| Unsupported::new("there are no control groups of version 2"))?;
        for entry in fs::read_dir(&root)?.flatten() {
            let name = entry.file_name();
            let mark = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let owner = mark.and_then(|mark| Owner::parse(mark.rsplit_once('.')?.0));
            if owner.is_some_and(|owner| owner.is_dead()) {
                let left = Self(entry.path());
                // Another harness may do the same.
                let _ = left.kill().and_then(|()| left.remove());
            }
        }
        Ok(Self(root.join(format!("{PREFIX}{}.{name}", Owner::new().mark()))))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it, on the way to a start.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn create(&self) -> anyhow::Result<()> {
        fs::create_dir(&self.0).with_context(|| format!("cannot make {}", self.0.display()))
    }

    /// Kills all that is in it, and waits until nothing is.
    ///
    /// # Errors
    /// When something survives.
    pub(super) fn kill(&self) -> anyhow::Result<()> {
        if !self.0.exists() {
            return Ok(());
        }
        fs::write(self.0.join("cgroup.kill"), "1")?;
        let is_empty = || {
            let events = fs::read_to_string(self.0.join("cgroup.events")).ok()?;
            events.contains("populated 0").then_some(())
        };
        ensure!(
            wait_for(BOUND, is_empty).is_some(),
            "processes in {} survive",
            self.0.display()
        );
        Ok(())
    }

    /// Removes it, with all below it.
    ///
    /// # Errors
    /// When a process is in one of them.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        remove(&self.0).with_context(|| format!("cannot remove {}", self.0.display()))
    }
}

fn remove(group: &Path) -> io::Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
