//! Control groups of the nodes: one below the root of every hierarchy (version 1), or of the only one
//! (version 2). Every process of a node is in or below it, so all processes of a node can be found.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal};

use super::layout::NodeLayout;
use crate::process::wait_for;

const ROOT: &str = "/sys/fs/cgroup";
/// The controllers that kubelet and runc set limits with.
const WANTED: [&str; 6] = ["cpu", "cpuset", "memory", "hugetlb", "pids", "io"];
/// A process in uninterruptible sleep dies only after the sleep, and a group can be removed only after its
/// processes.
const BOUND: Duration = Duration::from_secs(30);
/// The group of the node's own programs, beside the pods. In version 2 a group has either processes or
/// children.
const MACHINE: &str = "machine";

/// True on a machine that has only version 2.
pub(crate) fn is_unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// Makes the group of a node.
///
/// # Errors
/// When the kernel refuses: it needs root, and hierarchies that can be written to.
pub(crate) fn create(node: NodeLayout) -> anyhow::Result<()> {
    let hierarchies = hierarchies()?;
    ensure!(
        !hierarchies.is_empty(),
        "no control groups are mounted below {ROOT}"
    );
    for hierarchy in hierarchies {
        let group = hierarchy.join(node.cgroup());
        let made = || -> io::Result<()> {
            if is_unified() {
                delegate(&hierarchy)?;
            }
            fs::create_dir(&group)?;
            prepare(&hierarchy, &group)?;
            fs::create_dir(group.join(MACHINE))?;
            prepare(&group, &group.join(MACHINE))
        };
        made().with_context(|| format!("cannot make the control group {}", group.display()))?;
    }
    Ok(())
}

/// Puts a process, with all that it will start, into the group of the node's own programs.
///
/// # Errors
/// When the process is gone, or the kernel refuses.
pub(crate) fn enter(node: NodeLayout, pid: Pid) -> anyhow::Result<()> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.join(node.cgroup()).join(MACHINE);
        fs::write(group.join("cgroup.procs"), pid.as_raw_pid().to_string())
            .with_context(|| format!("cannot enter the control group {}", group.display()))?;
    }
    Ok(())
}

/// Kills everything on a node.
///
/// # Errors
/// When something survives for half a minute.
pub(crate) fn kill(node: NodeLayout) -> anyhow::Result<()> {
    let dead = wait_for(BOUND, || {
        let processes = processes(node);
        for &pid in &processes {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        processes.is_empty().then_some(())
    });
    if dead.is_none() {
        bail!("processes of {} survive: {:?}", node.name(), processes(node));
    }
    Ok(())
}

/// Kills everything on a node, and removes its group. Does nothing if the node has no group.
///
/// # Errors
/// When something survives, or the kernel keeps a group.
pub(crate) fn remove(node: NodeLayout) -> anyhow::Result<()> {
    kill(node)?;
    for hierarchy in hierarchies()? {
        for group in tree(&hierarchy.join(node.cgroup())).into_iter().rev() {
            // The kernel needs a moment after the end of the last process.
            let removed = wait_for(BOUND, || match fs::remove_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => None,
                _ => Some(()),
            });
            ensure!(
                removed.is_some(),
                "cannot remove the control group {}",
                group.display()
            );
        }
    }
    Ok(())
}

/// Nodes that have a group.
pub(crate) fn nodes() -> Vec<NodeLayout> {
    let hierarchies = hierarchies().unwrap_or_default();
    NodeLayout::all(NodeLayout::MOST)
        .filter(|node| {
            hierarchies
                .iter()
                .any(|hierarchy| hierarchy.join(node.cgroup()).exists())
        })
        .collect()
}

pub(crate) fn processes(node: NodeLayout) -> Vec<Pid> {
    let mut found = Vec::new();
    for hierarchy in hierarchies().unwrap_or_default() {
        for group in tree(&hierarchy.join(node.cgroup())) {
            let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            found.extend(
                text.split_whitespace()
                    .filter_map(|pid| Pid::from_raw(pid.parse().ok()?)),
            );
        }
    }
    found.sort_unstable_by_key(|pid| pid.as_raw_pid());
    found.dedup();
    found
}

/// The mount points of the hierarchies. Beside those of version 1 there may be one of version 2 without
/// controllers, in which runc makes groups, too.
fn hierarchies() -> anyhow::Result<Vec<PathBuf>> {
    if is_unified() {
        return Ok(vec![PathBuf::from(ROOT)]);
    }
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    Ok(mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
            ["cgroup", "cgroup2"]
                .contains(&kind)
                .then(|| PathBuf::from(place))
        })
        .collect())
}

/// Sets what a new group needs before processes may enter it.
fn prepare(parent: &Path, group: &Path) -> io::Result<()> {
    if is_unified() {
        return match group.ends_with(MACHINE) {
            true => Ok(()),
            false => delegate(group),
        };
    }
    // In a new group of version 1 these files are empty, and then no process may enter.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if group.join(file).exists() {
            fs::write(group.join(file), fs::read(parent.join(file))?)?;
        }
    }
    Ok(())
}

/// Gives a group's children the controllers that they need, as far as the group has them (version 2).
fn delegate(group: &Path) -> io::Result<()> {
    let there = fs::read_to_string(group.join("cgroup.controllers"))?;
    for controller in there.split_whitespace().filter(|name| WANTED.contains(name)) {
        fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"))?;
    }
    Ok(())
}

/// A group and all below it, parents first.
fn tree(group: &Path) -> Vec<PathBuf> {
    let mut found = vec![group.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        found.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
        next += 1;
    }
    found
}
