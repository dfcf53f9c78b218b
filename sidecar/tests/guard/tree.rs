//! Nothing of a tree stays behind, however it hides.

use std::os::unix::fs::PermissionsExt;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::guard::protocol::{FromGuard, ToGuard};
use rustix::process::{Pid, Signal};

use crate::harness::{
    A, Guard, LONG, assert_in_time, children, has, is_alive, is_root, own_program, shell, until,
};
use crate::tests;

tests![
    descendants_that_hide_are_gone_by_the_deadline,
    a_stopped_descendant_is_gone_by_the_deadline,
    a_descendant_of_another_user_is_gone_by_the_deadline,
    a_fork_storm_is_gone_by_the_deadline,
    a_process_that_forks_and_ends_again_and_again_is_caught,
    what_may_not_be_signalled_is_reported_and_never_called_gone,
    nothing_is_left_when_the_guard_is_killed,
    nothing_is_left_when_the_anchor_is_killed,
    what_the_main_process_leaves_behind_ends_with_it,
    the_keeper_is_not_part_of_what_is_killed,
];

/// In sessions of their own, with their parents gone, deaf to SIGTERM, in background shells.
const HIDING: &str = "trap '' TERM
    setsid sh -c \"setsid $recorder role:record record-a & setsid $recorder role:record record-b &\"
    ( ( record record-c & ) & )
    setsid setsid $recorder role:record record-d &
    exec $recorder role:record record-main";

fn descendants_that_hide_are_gone_by_the_deadline() {
    if !has("setsid") {
        return;
    }
    let mut guard = Guard::run(&["subreaper"], HIDING);
    let kill_at = guard.begin(A, 1400, 1500);
    let pids = guard.recorders("record", 5);
    guard.expect_gone(A);
    assert!(!pids.into_iter().any(is_alive));
    for name in ["a", "b", "c", "d", "main"] {
        assert_in_time(&guard.file(&format!("record-{name}")), kill_at);
    }
}

fn a_stopped_descendant_is_gone_by_the_deadline() {
    let mut guard = Guard::run(
        &["subreaper"],
        "record record-a & exec $recorder role:record record-main",
    );
    guard.begin(A, 1400, 1500);
    let pids = guard.recorders("record", 2);
    for pid in &pids {
        rustix::process::kill_process(*pid, Signal::STOP).expect("stopped");
    }
    guard.expect_gone(A);
    assert!(!pids.into_iter().any(is_alive));
}

fn a_descendant_of_another_user_is_gone_by_the_deadline() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let other = "setpriv --reuid 65534 --regid 65534 --clear-groups $recorder role:record";
    let script = format!("{other} record-a & trap '' TERM; exec {other} record-main");
    let mut guard = Guard::run(&["subreaper"], &script);
    let kill_at = guard.begin(A, 1400, 1500);
    let pids = guard.recorders("record", 2);
    guard.expect_gone(A);
    assert!(!pids.into_iter().any(is_alive));
    assert_in_time(&guard.file("record-a"), kill_at);
}

fn a_fork_storm_is_gone_by_the_deadline() {
    // 40 shells that start a process after the other, each of which becomes an orphan.
    let script = "trap '' TERM
        i=0; while [ $i -lt 40 ]; do i=$((i+1)); (while :; do (sleep 1 &); sleep 0.02; done) & done
        exec $recorder role:record record-main";
    let mut guard = Guard::run(&["subreaper"], script);
    let kill_at = guard.begin(A, 700, 800);
    guard.recorders("record", 1);
    guard.expect_gone(A);
    println!("  gone {:?} after the deadline", BootInstant::now() - kill_at);
    assert_in_time(&guard.file("record-main"), kill_at);
}

fn a_process_that_forks_and_ends_again_and_again_is_caught() {
    let script = "f() { date +%N >chain; f & }; f; exec $recorder role:record record-main";
    let mut guard = Guard::run(&["subreaper"], script);
    let kill_at = guard.begin(A, 900, 900);
    guard.recorders("record", 1);
    guard.expect_gone(A);
    println!("  gone {:?} after the deadline", BootInstant::now() - kill_at);
    let before = std::fs::metadata(guard.file("chain"))
        .and_then(|file| file.modified())
        .expect("a chain");
    // Twenty times what a link of the chain takes.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let after = std::fs::metadata(guard.file("chain"))
        .and_then(|file| file.modified())
        .expect("a chain");
    assert_eq!(before, after, "the chain goes on");
}

/// A copy of `setpriv` that is root for everybody: how a guard comes to a child that it may not
/// signal.
pub fn root_for_everybody(dir: &std::path::Path) -> String {
    let setpriv = lockkeeper_sidecar::guard::resolve_command("setpriv".as_ref()).expect("setpriv");
    let copy = dir.join("become-root");
    std::fs::copy(setpriv, &copy).expect("copied");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).expect("permissions");
    format!("{} --reuid 0 --regid 0 --clear-groups", copy.display())
}

fn what_may_not_be_signalled_is_reported_and_never_called_gone() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let tools = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(tools.path(), std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let program = copy_for_everybody(tools.path());
    let script = format!(
        "{} {program} role:record record-root & exec {program} role:record record-main",
        root_for_everybody(tools.path())
    );
    let prefix = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    let mut guard = Guard::start_program(program.as_ref(), &prefix, &["subreaper"], &shell(&script));
    guard.begin(A, 60_000, 60_000);
    let root = guard.recorders("record-root", 1)[0];
    guard.send(ToGuard::Revoke { token: A });
    let first = guard.expect("Survivors", |frame| match frame {
        FromGuard::Survivors { .. } => Some(true),
        FromGuard::Gone { .. } => Some(false),
        _ => None,
    });
    assert!(first, "something was called gone that is not");
    assert!(is_alive(root));
    rustix::process::kill_process(root, Signal::KILL).expect("killed");
    guard.expect_gone(A);
}

/// This program where every user can execute it.
pub fn copy_for_everybody(dir: &std::path::Path) -> String {
    let copy = dir.join("program");
    std::fs::copy(own_program(), &copy).expect("copied");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    copy.to_str().expect("a plain path").to_owned()
}

fn all_gone(what: &str, pids: &[Pid]) {
    let killed = BootInstant::now();
    until(what, || !pids.iter().copied().any(is_alive));
    println!("  all gone {:?} after it was killed", BootInstant::now() - killed);
}

fn nothing_is_left_when_the_guard_is_killed() {
    if !has("setsid") {
        return;
    }
    let mut guard = Guard::run(&["subreaper"], HIDING);
    guard.begin(A, 60_000, 60_000);
    let mut pids = guard.recorders("record", 5);
    pids.extend(children(guard.pid()));
    guard.signal(Signal::KILL);
    all_gone("the tree's end", &pids);
}

fn nothing_is_left_when_the_anchor_is_killed() {
    if !has("setsid") {
        return;
    }
    let mut guard = Guard::run(&["subreaper"], HIDING);
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 5);
    let anchor = children(guard.pid());
    assert_eq!(anchor.len(), 1);
    rustix::process::kill_process(anchor[0], Signal::KILL).expect("killed");
    all_gone("the tree's end", &pids);
    assert_eq!(guard.expect_exited(A), 137);
    // It can start again.
    guard.begin(crate::harness::B, 60_000, 60_000);
}

fn what_the_main_process_leaves_behind_ends_with_it() {
    let mut guard = Guard::run(
        &["subreaper"],
        "(record record-a &) ; while [ ! -e end ]; do sleep 0.01; done",
    );
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 1);
    std::fs::write(guard.file("end"), "").expect("written");
    assert_eq!(guard.expect_exited(A), 0);
    assert!(!pids.into_iter().any(is_alive));
}

fn the_keeper_is_not_part_of_what_is_killed() {
    let mut guard = Guard::run(
        &["subreaper", "--keeper", "keeper"],
        "exec $recorder role:record record",
    );
    let keeper = guard.recorders("keeper", 1)[0];
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    guard.send(ToGuard::Stop {
        token: A,
        kill_at: BootInstant::now() + LONG,
    });
    guard.expect_gone(A);
    assert!(is_alive(keeper));
    rustix::process::kill_process(keeper, Signal::KILL).expect("killed");
}
