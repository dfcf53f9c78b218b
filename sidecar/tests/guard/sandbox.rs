//! Where a sandbox or an old kernel has no pidfds and no `close_range`.

use std::ffi::OsString;

use lockkeeper_sidecar::link::protocol::ToGuard;
use rustix::process::Signal;

use crate::harness::{A, Guard, assert_in_time, children, is_alive, own_program, shell, until};
use crate::tests;

tests![
    the_calls_are_forbidden_indeed,
    a_signal_reaches_the_application_all_the_same,
    the_application_is_gone_by_the_deadline_all_the_same,
    the_anchor_keeps_nothing_of_the_guard_open,
];

/// A guard whose calls of this kind are answered with ENOSYS.
fn start(script: &str) -> Guard {
    let program = own_program().into_string().expect("a plain path");
    Guard::start(&[&program, "role:old-kernel"], &["subreaper"], &shell(script))
}

fn the_calls_are_forbidden_indeed() {
    let output = std::process::Command::new(own_program())
        .args([
            "role:old-kernel".into(),
            own_program(),
            OsString::from("role:pidfd"),
        ])
        .output()
        .expect("executed");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Function not implemented (os error 38)\n"
    );
}

fn a_signal_reaches_the_application_all_the_same() {
    let script = "trap 'exit 3' TERM; echo >ready; while :; do sleep 0.01; done";
    let mut guard = start(script);
    guard.begin(A, 60_000, 60_000);
    until("the trap is set", || guard.file("ready").exists());
    guard.signal(Signal::TERM);
    assert_eq!(guard.expect_exited(A), 3);
}

fn the_application_is_gone_by_the_deadline_all_the_same() {
    let mut guard = start("trap '' TERM; record record-a & exec $recorder role:record record-main");
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 2);
    let kill_at = guard.shorten(A, false, 300, 400);
    guard.expect_gone(A);
    assert!(!pids.into_iter().any(is_alive));
    assert_in_time(&guard.file("record-a"), kill_at);
    assert_in_time(&guard.file("record-main"), kill_at);
}

fn the_anchor_keeps_nothing_of_the_guard_open() {
    let mut guard = start("exec $recorder role:record record");
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let anchor = children(guard.pid())[0];
    // Those of the user, the two ends of pipes, /proc and its signals.
    let open = || std::fs::read_dir(format!("/proc/{anchor}/fd")).map_or(0, Iterator::count);
    until("it has closed what is not its own", || open() == 3 + 4);
    guard.send(ToGuard::Revoke { token: A });
    guard.expect_gone(A);
}
