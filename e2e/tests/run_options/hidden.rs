//! Processes that the guard does not see: those that `/proc` hides, and those that it had before it became the guard.

use std::process::{Command, Stdio};

use lockkeeper_product::binaries;
use lockkeeper_testbed::process::wait_for;

use crate::harness::{BOUND, Run, ensemble};

/// Runs `lockkeeper run` as a user who sees only its own processes: without those that it may not trace.
fn behind_hidepid(containment: &[&str]) -> (Option<i32>, String) {
    let script = "mount -o remount,hidepid=invisible /proc && \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args([
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-ec",
            script,
            "sh",
        ])
        .arg(binaries::lockkeeper().unwrap())
        .args([
            "run",
            "--connect",
            "127.0.0.1:1",
            "--lock",
            "/hidden",
            "--wait-timeout",
            "0s",
        ])
        .args(containment)
        .args(["--", "true"])
        .stdin(Stdio::null());
    let said = command.output().unwrap();
    (said.status.code(), String::from_utf8(said.stderr).unwrap())
}

#[test]
fn a_sweep_is_refused_where_proc_hides_processes_that_it_would_have_to_stop() {
    if !rustix::process::getuid().is_root() {
        lockkeeper_skip::skip("needs root, to hide processes");
        return;
    }
    // This user has no control group of its own, so that `auto` would be a sweep, too.
    for containment in [&["--containment", "sweep"][..], &[]] {
        let (code, said) = behind_hidepid(containment);
        assert_eq!(code, Some(64), "{said}");
        assert!(
            said.contains("a sweep would miss processes that /proc hides"),
            "{said}"
        );
    }
}

#[test]
fn a_run_that_may_descend_from_what_was_there_before_the_outer_one_is_refused() {
    let ensemble = ensemble();
    let lockkeeper = binaries::lockkeeper().unwrap();
    let inner = format!("{} run --wait-timeout 0s -- echo inside", lockkeeper.display());
    // The script has a background job, and becomes the outer run.
    let outer = format!(
        "sleep 1000 & exec {} run --connect {} --lock /hidden/elders --session-timeout 15s -- sh -c '{inner}; echo $?; exec sleep 1000'",
        lockkeeper.display(),
        ensemble.connect_string()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &outer]);
    let outer = Run::spawn(&ensemble, "elders", command);
    wait_for(BOUND, || (outer.stdout().lines().count() == 1).then_some(()))
        .unwrap_or_else(|| panic!("{}{}", outer.stdout(), outer.stderr()));
    assert_eq!(outer.stdout().trim(), "69", "{}", outer.stderr());
    let sentence = "was executed by a process that had started others before";
    assert!(outer.stderr().contains(sentence), "{}", outer.stderr());
}
