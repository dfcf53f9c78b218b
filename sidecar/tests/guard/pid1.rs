//! The guard as PID 1 of a PID namespace, as in a container.

use std::time::Duration;

use lockkeeper_sidecar::link::protocol::{FromGuard, ToGuard};
use rustix::process::{Pid, Signal};

use crate::harness::{
    A, AS_NOBODY, B, Guard, assert_in_time, children, eventually, has, is_alive, is_root, open_for_everybody,
    shell, state, until, until_paused,
};
use crate::tests;
use crate::tree::{copy_for_everybody, root_for_everybody};

tests![
    pid_1_kills_its_namespace_by_the_deadline_and_starts_again_in_the_same_container,
    pid_1_ends_with_its_namespace_when_something_may_not_be_signalled,
    pid_1_does_not_say_gone_while_something_is_left_that_came_in_from_outside,
    pid_1_reaps_orphans,
    pid_1_in_standby_ends_on_sigterm,
    pid_1_passes_sigterm_on_and_ends_with_the_application,
    pid_1_pauses_and_resumes_its_namespace,
    a_guard_that_is_not_pid_1_says_so,
];

pub const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

pub fn can_unshare() -> bool {
    is_root() && has("unshare") && has("setpriv") && has("setsid")
}

fn start(script: &str) -> Guard {
    Guard::start(&NAMESPACE, &["pid1"], &shell(script))
}

/// The guard's process id outside.
pub fn guard_pid(guard: &Guard) -> Pid {
    eventually("the namespace", || children(guard.pid()).first().copied())
}

/// All processes of the namespace but the guard, outside.
fn inhabitants(guard: &Guard) -> usize {
    fn below(pid: Pid) -> usize {
        children(pid).into_iter().map(|child| 1 + below(child)).sum()
    }
    below(guard_pid(guard))
}

const HIDING: &str = "trap '' TERM
    setsid sh -c \"setsid $recorder role:record record-a & setsid $recorder role:record record-b &\"
    setpriv --reuid 65534 --clear-groups $recorder role:record record-c &
    exec $recorder role:record record-main";

fn pid_1_kills_its_namespace_by_the_deadline_and_starts_again_in_the_same_container() {
    if !can_unshare() {
        return;
    }
    let mut guard = start(HIDING);
    for token in [A, B] {
        guard.begin(token, 60_000, 60_000);
        until("all recorders", || inhabitants(&guard) == 4);
        guard.recorders("record", 4);
        let kill_at = guard.shorten(token, false, 300, 400);
        guard.expect_gone(token);
        assert_eq!(inhabitants(&guard), 0);
        for name in ["a", "b", "c", "main"] {
            assert_in_time(&guard.file(&format!("record-{name}")), kill_at);
            std::fs::remove_file(guard.file(&format!("record-{name}"))).expect("removed");
        }
    }
    guard.send(ToGuard::Finish { code: 9 });
    assert_eq!(guard.exit_code(), Some(9));
}

fn pid_1_ends_with_its_namespace_when_something_may_not_be_signalled() {
    if !can_unshare() {
        return;
    }
    let tools = tempfile::tempdir().expect("a directory");
    open_for_everybody(tools.path());
    let program = copy_for_everybody(tools.path());
    let become_root = root_for_everybody(tools.path());
    let script =
        format!("{become_root} {program} role:record record-root & exec {program} role:record record-main");
    let prefix = [&NAMESPACE[..], &AS_NOBODY].concat();
    let mut guard = Guard::start_program(program.as_ref(), &prefix, &["pid1"], &shell(&script));
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 2);
    let pids = children(guard_pid(&guard));
    let kill_at = guard.shorten(A, false, 300, 300);
    assert_eq!(guard.exit_code(), Some(75));
    assert!(!pids.into_iter().any(is_alive));
    assert_in_time(&guard.file("record-root"), kill_at);
}

fn pid_1_does_not_say_gone_while_something_is_left_that_came_in_from_outside() {
    if !can_unshare() || !has("nsenter") {
        return;
    }
    let mut guard = start("exec $recorder role:record record");
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    // As a runtime executes a hook: its parent is outside, and here does not reap it for a while.
    let mut runtime = std::process::Command::new("nsenter");
    let pid = guard_pid(&guard).as_raw_nonzero().to_string();
    let mut runtime = runtime
        .args(["--pid", "--target", &pid, "sleep", "60"])
        .spawn()
        .expect("started");
    let outside = Pid::from_child(&runtime);
    let hook = eventually("the hook", || children(outside).first().copied());
    rustix::process::kill_process(outside, Signal::STOP).expect("stopped");
    until("the runtime is stopped", || state(outside) == Some('T'));
    guard.send(ToGuard::Revoke { token: A });
    until("the hook was killed", || state(hook) == Some('Z'));
    // Its own end is the proof then: the kernel lets it end when all of its namespace has.
    let pid = guard_pid(&guard);
    until("the guard is ending", || {
        std::fs::read_link(format!("/proc/{pid}/exe")).is_err()
    });
    let said = guard.recv_all();
    assert!(
        !said.iter().any(|frame| matches!(frame, FromGuard::Gone { .. })),
        "{said:?}"
    );
    assert_ne!(state(pid), Some('Z'), "it has ended");
    rustix::process::kill_process(outside, Signal::CONT).expect("resumed");
    runtime.wait().expect("reaped");
    guard.wait();
}

fn pid_1_reaps_orphans() {
    if !can_unshare() {
        return;
    }
    let mut guard =
        start("i=0; while [ $i -lt 20 ]; do i=$((i+1)); (true & ); done; exec $recorder role:record record");
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    until("only the recorder is left", || inhabitants(&guard) == 1);
}

fn pid_1_in_standby_ends_on_sigterm() {
    if !can_unshare() {
        return;
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut guard = start("exec sleep 1000");
        rustix::process::kill_process(guard_pid(&guard), signal).expect("signalled");
        assert_eq!(guard.exit_code(), Some(code));
    }
}

fn pid_1_passes_sigterm_on_and_ends_with_the_application() {
    if !can_unshare() {
        return;
    }
    let mut guard = start("trap 'exit 5' TERM; echo >ready; while :; do sleep 0.01; done");
    guard.begin(A, 60_000, 60_000);
    until("the trap is set", || guard.file("ready").exists());
    rustix::process::kill_process(guard_pid(&guard), Signal::TERM).expect("signalled");
    assert_eq!(guard.expect_exited(A), 5);
    assert_eq!(guard.exit_code(), Some(5));
}

fn pid_1_pauses_and_resumes_its_namespace() {
    if !can_unshare() {
        return;
    }
    let mut guard = until_paused(|| {
        let mut guard =
            start("setsid $recorder role:record record-a & exec $recorder role:record record-main");
        guard.grant(A, true, true, 60_000, 60_000);
        guard.expect_started(A);
        guard.recorders("record", 2);
        guard.shorten(A, true, 300, 300);
        guard.is_paused().then_some(guard)
    });
    let size =
        || ["record-a", "record-main"].map(|name| std::fs::metadata(guard.file(name)).expect("there").len());
    let before = size();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(size(), before, "something runs");
    guard.grant(B, true, true, 60_000, 60_000);
    guard.expect_started(B);
    let size =
        || ["record-a", "record-main"].map(|name| std::fs::metadata(guard.file(name)).expect("there").len());
    until("both go on", || {
        size().iter().zip(before).all(|(now, before)| *now > before)
    });
}

fn a_guard_that_is_not_pid_1_says_so() {
    let output = std::process::Command::new(crate::harness::own_program())
        .args(["role:guard", "pid1", "--socket", "/nowhere", "--", "true"])
        .output()
        .expect("a guard");
    assert_eq!(output.status.code(), Some(70));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("not PID 1"), "{said}");
}
