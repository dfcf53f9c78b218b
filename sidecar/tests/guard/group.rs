//! A control group of a test's own.

use std::path::{Path, PathBuf};

use crate::harness::{skip, until};

/// A control group of version 2, for all that a test puts into it.
pub struct Group(pub PathBuf);

impl Group {
    pub fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("proc(5)");
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let Some(mount) = mount else {
            skip("needs control groups of version 2");
            return None;
        };
        let point = mount.split(' ').nth(4).expect("a mount point");
        Some(Self::at(
            Path::new(point).join(format!("{name}-{}", std::process::id())),
        ))
    }

    pub fn at(directory: PathBuf) -> Self {
        std::fs::create_dir(&directory).expect("a group");
        Self(directory)
    }

    pub fn is_empty(&self) -> bool {
        let events = std::fs::read_to_string(self.0.join("cgroup.events")).expect("its state");
        events.contains("populated 0")
    }

    pub fn procs(&self) -> String {
        self.0
            .join("cgroup.procs")
            .to_str()
            .expect("a plain path")
            .to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        until("the group is empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}
