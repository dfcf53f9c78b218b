//! What the page names: its commands, its manifest, and the image of busybox.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use lockkeeper_documents::{blocks, read, steps};
use tempfile::TempDir;

/// The page.
pub const PAGE: &str = "docs/tutorial.md";

/// What an image of busybox is made of: this machine's, which is static.
pub fn busybox() -> anyhow::Result<TempDir> {
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
    Ok(folder)
}

#[test]
fn the_page_installs_rolls_out_crashes_a_node_and_uninstalls() {
    let steps = steps(PAGE);
    for needed in [
        "helm install",
        "check",
        "rollout restart",
        "docker kill",
        "takenFrom",
        "helm uninstall",
    ] {
        let is_there = steps.iter().any(|step| step.command.contains(needed));
        assert!(is_there, "no command with {needed}");
    }
}

#[test]
fn the_page_shows_the_manifest_that_it_applies() {
    let page = read(Path::new(PAGE));
    let shown = blocks(&page).into_iter().find(|block| block.language == "yaml");
    assert_eq!(shown.unwrap().text, read(Path::new("docs/examples/report.yaml")));
}
