//! An image of busybox, as the examples of the documentation run it: this machine's, which is static.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::{Context, ensure};
use lockkeeper_testbed::Cluster;

/// Pushes it by this name into the cluster's registry. Returns the name by which pods use it.
///
/// # Errors
/// When there is no busybox, or the image cannot be built.
pub fn push(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let found = Command::new("sh").args(["-c", "command -v busybox"]).output()?;
    let busybox = String::from_utf8(found.stdout)?;
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("root/bin");
    fs::create_dir_all(&bin)?;
    fs::copy(busybox.trim(), bin.join("busybox")).context("there is no busybox")?;
    let applets = Command::new(bin.join("busybox")).arg("--list").output()?;
    ensure!(applets.status.success(), "busybox lists no applets");
    for applet in String::from_utf8(applets.stdout)?
        .lines()
        .filter(|one| *one != "busybox")
    {
        symlink("busybox", bin.join(applet))?;
    }
    fs::write(
        folder.path().join("Dockerfile"),
        "FROM scratch\nCOPY root /\nCMD [\"sh\"]\n",
    )?;
    cluster.push_image(name, folder.path(), None)
}
