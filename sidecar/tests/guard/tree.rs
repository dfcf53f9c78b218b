//! Nothing of a tree stays behind, however it hides.

use std::os::unix::fs::PermissionsExt;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::link::protocol::{FromGuard, ToGuard};
use rustix::process::{Pid, Signal, getpgid, getsid};

use crate::harness::{
    A, AS_NOBODY, Guard, LONG, assert_in_time, children, has, is_alive, is_root, own_program, shell, until,
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
    nothing_is_left_when_the_process_group_or_the_session_of_the_guard_is_killed,
    the_application_stays_in_the_process_group_of_its_guard,
    nothing_is_left_when_the_anchor_is_killed,
    what_the_main_process_leaves_behind_ends_with_it,
    the_keeper_is_not_part_of_what_is_killed,
    a_process_that_gets_the_number_of_a_keeper_that_has_ended_is_not_spared,
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
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 5);
    let kill_at = guard.shorten(A, false, 300, 400);
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
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 2);
    for pid in &pids {
        rustix::process::kill_process(*pid, Signal::STOP).expect("stopped");
    }
    guard.shorten(A, false, 300, 400);
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
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 2);
    let kill_at = guard.shorten(A, false, 300, 400);
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
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let kill_at = guard.shorten(A, false, 700, 800);
    guard.expect_gone(A);
    println!("  gone {:?} after the deadline", BootInstant::now() - kill_at);
    assert_in_time(&guard.file("record-main"), kill_at);
}

fn a_process_that_forks_and_ends_again_and_again_is_caught() {
    let script = "f() { date +%N >chain; f & }; f; exec $recorder role:record record-main";
    let mut guard = Guard::run(&["subreaper"], script);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let kill_at = guard.shorten(A, false, 300, 300);
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

/// A copy of `setpriv` that is root for all users: how a guard comes to a child that it may not signal.
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
    let mut guard = Guard::start_program(program.as_ref(), &AS_NOBODY, &["subreaper"], &shell(&script));
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

/// Processes that end with a test, even if it fails: nothing else may be left that would end them.
struct Tree(Vec<Pid>);

impl Drop for Tree {
    fn drop(&mut self) {
        for pid in self.0.iter().filter(|pid| is_alive(**pid)) {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
    }
}

/// As `timeout -s KILL`, `killpg` and CI runners do, and `pkill -9 -s`.
fn nothing_is_left_when_the_process_group_or_the_session_of_the_guard_is_killed() {
    if !has("setsid") {
        return;
    }
    // One that shows no trace of where it comes from.
    let script = format!("env -i setsid $recorder role:record record-bare & {HIDING}");
    for kills_session in [false, true] {
        let mut guard = Guard::start(&["setsid"], &["subreaper"], &shell(&script));
        guard.begin(A, 60_000, 60_000);
        let mut pids = guard.recorders("record", 6);
        pids.extend(children(guard.pid()));
        let _tree = Tree(pids.clone());
        let session: Vec<Pid> = pids
            .iter()
            .copied()
            .chain([guard.pid()])
            .filter(|pid| getsid(Some(*pid)) == Ok(guard.pid()))
            .collect();
        assert!(session.len() > 1, "the main process is in it");
        if kills_session {
            // A stopped process does not act before the last of them is killed.
            for signal in [Signal::STOP, Signal::KILL] {
                for pid in &session {
                    let _ = rustix::process::kill_process(*pid, signal);
                }
            }
        } else {
            rustix::process::kill_process_group(guard.pid(), Signal::KILL).expect("killed");
        }
        all_gone("the tree's end", &pids);
    }
}

/// A terminal sends its signals to the process group in its foreground, and takes input from that alone.
fn the_application_stays_in_the_process_group_of_its_guard() {
    if !has("setsid") {
        return;
    }
    let mut guard = Guard::start(
        &["setsid"],
        &["subreaper"],
        &shell("exec $recorder role:record record"),
    );
    guard.begin(A, 60_000, 60_000);
    let application = guard.recorders("record", 1)[0];
    let places = |pid: Pid| (getpgid(Some(pid)), getsid(Some(pid)));
    assert_eq!(places(application), (Ok(guard.pid()), Ok(guard.pid())));
    let anchor = children(guard.pid())[0];
    assert_eq!(places(anchor), (Ok(anchor), Ok(anchor)));
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

fn a_process_that_gets_the_number_of_a_keeper_that_has_ended_is_not_spared() {
    if !crate::pid1::can_unshare() {
        return;
    }
    // In a PID namespace the next number can be chosen (pid_namespaces(7)).
    let script = "while [ ! -e number ]; do sleep 0.01; done
        read number <number
        trap '' TERM; echo $((number - 1)) >/proc/sys/kernel/ns_last_pid
        $recorder role:record record & wait";
    let prefix = [
        &crate::pid1::NAMESPACE[..],
        &["sh", "-c", "\"$@\"; exit $?", "sh"],
    ]
    .concat();
    let mut guard = Guard::start(&prefix, &["subreaper", "--keeper", "keeper"], &shell(script));
    guard.begin(A, 60_000, 60_000);
    let number = guard.recorders("keeper", 1)[0];
    let first = crate::pid1::guard_pid(&guard);
    let inside = children(first)[0];
    // The numbers inside are others than here; the keeper's stand-in is the one that sleeps.
    let keeper = children(inside)
        .into_iter()
        .find(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n"));
    let keeper = keeper.expect("the keeper's stand-in");
    rustix::process::kill_process(keeper, Signal::KILL).expect("killed");
    until("the keeper is reaped", || {
        !std::path::Path::new(&format!("/proc/{keeper}")).exists()
    });
    std::fs::write(guard.file("number.new"), format!("{number}\n")).expect("written");
    std::fs::rename(guard.file("number.new"), guard.file("number")).expect("renamed");
    assert_eq!(guard.recorders("record", 1), [number], "it has another number");
    let kill_at = BootInstant::now();
    guard.send(ToGuard::Revoke { token: A });
    guard.expect_gone(A);
    let last = crate::harness::last_stamp(&guard.file("record"));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(
        crate::harness::last_stamp(&guard.file("record")),
        last,
        "it goes on"
    );
    assert_in_time(&guard.file("record"), kill_at);
}
