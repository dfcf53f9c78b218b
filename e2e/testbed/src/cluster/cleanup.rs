//! Removal of everything that a cluster is made of, and of the remains of a killed supervisor.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::layout::{self, MOUNTS_LOCK};
use super::{cgroups, network, node};
use crate::cache;
use crate::owner::sweep_leftovers;

/// Removes the remains of a cluster whose supervisor is dead or is the caller.
///
/// # Errors
/// When something cannot be removed.
pub fn sweep() -> anyhow::Result<()> {
    sweep_leftovers();
    for node in cgroups::nodes() {
        cgroups::remove(node)?;
    }
    network::remove()?;
    remove_mount_points()?;
    // The nodes' mounts are not visible here. If one were, its content would be removed too.
    let mounts = mounts()?;
    ensure!(mounts.is_empty(), "still mounted: {}", mounts.join(", "));
    let directory = layout::directory();
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Makes the places where nodes mount something, and keeps them while the file lives that it returns.
///
/// # Errors
/// When one cannot be made.
pub(crate) fn hold_mount_points() -> anyhow::Result<fs::File> {
    let lock = mounts_lock()?;
    lock.lock_shared()
        .with_context(|| format!("cannot lock {MOUNTS_LOCK}"))?;
    for place in node::MOUNT_POINTS {
        fs::create_dir_all(place).with_context(|| format!("cannot make {place}"))?;
    }
    Ok(lock)
}

/// Removes these places, unless the nodes of another cluster use them: the kernel ends a mount whose place is removed,
/// also one that only another mount namespace has.
fn remove_mount_points() -> anyhow::Result<()> {
    if mounts_lock()?.try_lock().is_ok() {
        for place in node::MOUNT_POINTS {
            // Removed only if it is empty: otherwise another program uses it.
            let _ = fs::remove_dir(place);
        }
    }
    Ok(())
}

fn mounts_lock() -> anyhow::Result<fs::File> {
    fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(MOUNTS_LOCK)
        .with_context(|| format!("cannot open {MOUNTS_LOCK}"))
}

/// The traces of a cluster on this machine, running or not, as text for users.
///
/// # Errors
/// When the list of mounts cannot be read.
pub fn traces() -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for node in cgroups::nodes() {
        found.push(format!("control group {}", node.cgroup()));
        found.extend(
            cgroups::processes(node)
                .into_iter()
                .map(|pid| format!("process {} of {}", pid.as_raw_pid(), node.name())),
        );
    }
    found.extend(
        network::names()
            .into_iter()
            .map(|name| format!("network namespace {name}")),
    );
    found.extend(mounts()?.into_iter().map(|place| format!("mount {place}")));
    found.extend(programs()?);
    let directory = layout::directory();
    if directory.exists() {
        found.push(format!("directory {}", directory.display()));
    }
    Ok(found)
}

/// Running programs of the cluster. Each has its supervisor's environment.
fn programs() -> anyhow::Result<Vec<String>> {
    let cache = cache::directory("cluster")?;
    let number = format!("{}={}", layout::NUMBER, layout::number());
    let is_ours = |process: PathBuf| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == number.as_bytes())
    };
    Ok(fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| {
            // A process that has ended has no such link, nor has a process of the kernel.
            let program = fs::read_link(entry.path().join("exe")).ok()?;
            let pid = entry.file_name();
            (program.starts_with(&cache) && is_ours(entry.path()))
                .then(|| format!("process {} runs {}", pid.display(), program.display()))
        })
        .collect())
}

/// Places of ours where something is mounted.
fn mounts() -> anyhow::Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let directory = layout::directory();
    Ok(mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|place| Path::new(place).starts_with(&directory))
        .map(str::to_owned)
        .collect())
}
