//! The static binary needs nothing from the file system that it runs in. The test takes the binary of the
//! images, or the one that `LOCKKEEPER_STATIC_BINARY` names (`make test-static`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_product::binaries;
use lockkeeper_testbed::{Config, Ensemble};

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(60);

/// Mounts in a mount namespace of its own, and changes the root directory to `$0`.
const ENTER: &str = r#"
mount --rbind /proc "$0/proc"
mount --bind /dev/null "$0/dev/null"
exec "$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)" "$0" "$@"
"#;

/// The binary and its options.
const OPTIONS: &str = "/lockkeeper run --connect zk0:2181,zk1:2181,zk2:2181 --lock /static/report --socket /lock.sock \
                       --session-timeout 15s --stop-grace 400ms --tick-time 1s --wait-timeout 30s";

/// Fills `root` with the binary, and with the needed files that every container gets from its runtime:
/// `/etc/hosts`, `/etc/resolv.conf`, and places for `/proc` and `/dev/null`.
fn fill(root: &Path, binary: &Path, hosts: &str) {
    fs::create_dir(root.join("etc")).unwrap();
    fs::create_dir(root.join("proc")).unwrap();
    fs::create_dir(root.join("dev")).unwrap();
    fs::write(root.join("dev/null"), "").unwrap();
    fs::write(root.join("etc/hosts"), hosts).unwrap();
    fs::write(root.join("etc/resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    fs::copy(binary, root.join("lockkeeper")).unwrap();
}

#[test]
fn in_an_empty_root_a_name_is_resolved_and_a_program_runs_under_the_lock() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("only root may change the root directory");
    }
    let binary = match std::env::var_os("LOCKKEEPER_STATIC_BINARY") {
        Some(binary) => PathBuf::from(binary),
        None => binaries::image_context("sidecar").unwrap().join("lockkeeper"),
    };
    let ensemble = Ensemble::start(Config::default()).expect("the servers start");
    let hosts: String = (0..ensemble.len())
        .map(|server| format!("{} zk{server}\n", ensemble.address(server).ip()))
        .collect();
    let root = tempfile::tempdir().unwrap();
    fill(root.path(), &binary, &hosts);

    // The program under the lock is static too: the binary itself, which asks its keeper for the
    // lock. There is no /tmp for the socket.
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec", ENTER])
        .arg(root.path())
        .args(OPTIONS.split_whitespace())
        .args(["--", "/lockkeeper", "status", "--output", "json"]);
    let (stdout, stderr) = (root.path().join("stdout"), root.path().join("stderr"));
    command
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap());
    let mut run = ensemble
        .client("static")
        .unwrap()
        .spawn("static", command)
        .unwrap();
    let status = run.wait(BOUND).unwrap();
    let said = fs::read_to_string(&stderr).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{said}");
    let shown = fs::read_to_string(&stdout).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&lock["lock"], &lock["state"]),
        (&"/static/report".into(), &"Held".into()),
        "{shown}{said}"
    );
}
