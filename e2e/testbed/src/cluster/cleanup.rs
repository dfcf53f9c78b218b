//! Removal of everything that a cluster is made of, and of the remains of a killed supervisor.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, ensure};

use super::layout::DIRECTORY;
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
    for place in node::MOUNT_POINTS {
        // Removed only if it is empty: otherwise another program uses it.
        let _ = fs::remove_dir(place);
    }
    // The nodes' mounts are not visible here. If one were, its content would be removed too.
    let mounts = mounts()?;
    ensure!(mounts.is_empty(), "still mounted: {}", mounts.join(", "));
    match fs::remove_dir_all(DIRECTORY) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {DIRECTORY}"))
        }
        _ => Ok(()),
    }
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
    if Path::new(DIRECTORY).exists() {
        found.push(format!("directory {DIRECTORY}"));
    }
    Ok(found)
}

/// Running programs of the cluster.
fn programs() -> anyhow::Result<Vec<String>> {
    let cache = cache::directory("cluster")?;
    Ok(fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| {
            // A process that has ended has no such link, nor has a process of the kernel.
            let program = fs::read_link(entry.path().join("exe")).ok()?;
            let pid = entry.file_name();
            program
                .starts_with(&cache)
                .then(|| format!("process {} runs {}", pid.display(), program.display()))
        })
        .collect())
}

/// Places of ours where something is mounted.
fn mounts() -> anyhow::Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    Ok(mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|place| Path::new(place).starts_with(DIRECTORY))
        .map(str::to_owned)
        .collect())
}
