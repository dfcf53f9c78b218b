//! What the plug-in is made of, as cargo tells it.

use std::process::Command;

/// Crates that only Linux has, or that only a program beside the lock needs.
const FOREIGN: [&str; 4] = [
    "lockkeeper-lock",
    "lockkeeper-sidecar",
    "rustix",
    "zookeeper-client",
];

#[test]
fn the_plug_in_needs_nothing_that_only_linux_has_so_people_can_run_it_on_their_own_machines() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
        ])
        .args(["--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let told = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let crates: Vec<_> = told.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains(&"lockkeeper-crds"), "{told}");
    for foreign in FOREIGN {
        assert!(!crates.contains(&foreign), "{foreign} is among them:\n{told}");
    }
}
