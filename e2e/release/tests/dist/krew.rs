//! The plug-in by Krew, as users of kubectl install it.

use std::process::Command;

use crate::{MACHINES, VERSION, dist, has, repository, said, words};

/// Where the archives of a release are.
const DOWNLOADS: &str = "https://downloads.example/v0";

#[test]
fn krew_installs_the_plugin_by_the_manifest_of_the_release() {
    let Some(dist) = dist() else { return };
    if !has("go") {
        return;
    }
    let manifest = said(
        repository().join(".ci/release/krew"),
        words![VERSION, DOWNLOADS, &dist],
    );
    for machine in MACHINES {
        let archive = format!("uri: {DOWNLOADS}/kubectl-lockkeeper_{VERSION}_linux_{machine}.tar.gz\n");
        assert!(manifest.contains(&archive), "{manifest}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lockkeeper.yaml");
    std::fs::write(&file, manifest).unwrap();
    let machine = if cfg!(target_arch = "x86_64") {
        "amd64"
    } else {
        "arm64"
    };
    // It takes the archive from the release and not from the network, and compares its checksum all the same.
    let installed = Command::new("go")
        .args(["tool", "krew", "install", "--manifest"])
        .arg(&file)
        .arg("--archive")
        .arg(dist.join(format!("kubectl-lockkeeper_{VERSION}_linux_{machine}.tar.gz")))
        .env("KREW_ROOT", folder.path())
        .current_dir(repository().join(".ci/release"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&installed.stderr);
    assert!(installed.status.success(), "{errors}");
    let plugin = folder.path().join("bin/kubectl-lockkeeper");
    let version = said(plugin, ["--version"]);
    assert!(version.contains(VERSION), "{version}");
}
