//! An image with ZooKeeper's server, with the contract of the official one, which is not available everywhere.

use std::process::{Command, Stdio};

use anyhow::ensure;
use lockkeeper_testbed::{Cluster, java};

/// The script that puts it together.
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/zookeeper-image/build");

/// Pushes it by this name into the cluster's registry. Returns the name by which pods use it.
///
/// # Errors
/// When it cannot be built, because a JDK or a static busybox is missing.
pub fn push(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let output = Command::new(BUILD)
        .arg(folder.path())
        .arg(java::libraries()?)
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        output.status.success(),
        "the image of ZooKeeper cannot be built: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    cluster.push_image(name, folder.path(), None)
}
