//! Starting, ending, and what the user and the keeper see of it.

use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use lockkeeper_sidecar::link::protocol::{FromGuard, ToGuard};
use rustix::process::Signal;

use crate::harness::{A, B, Guard, children, is_alive, until};
use crate::pid1::{NAMESPACE, can_unshare, guard_pid};
use crate::tests;

tests![
    the_exit_code_or_signal_of_the_application_is_passed_on,
    a_command_that_cannot_be_executed_is_reported_as_such,
    the_application_gets_its_token_and_plain_signal_settings,
    signals_to_the_guard_reach_the_application_and_the_keeper,
    the_application_is_started_again_for_every_new_grant,
    a_guard_with_nothing_to_guard_ends_with_its_keeper,
    a_guard_with_a_socket_path_comes_back_to_a_new_keeper,
    a_frame_that_is_not_understood_closes_the_connection,
    finish_stops_everything_and_sets_the_exit_code,
];

fn the_exit_code_or_signal_of_the_application_is_passed_on() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -SEGV $$", 139),
        ("kill -KILL $$", 137),
    ] {
        let mut guard = Guard::run(&["subreaper"], script);
        guard.grant(A, true, false, 60_000, 60_000);
        assert_eq!(guard.expect_exited(A), code, "{script}");
        guard.hang_up();
        assert_eq!(guard.exit_code(), Some(code.into()), "{script}");
    }
}

fn a_command_that_cannot_be_executed_is_reported_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "no program").expect("written");
    for (command, code) in [(OsString::from("/no/such/program"), 127), (plain.into(), 126)] {
        let mut guard = Guard::start(&[], &["subreaper"], &[command]);
        guard.grant(A, true, false, 60_000, 60_000);
        guard.expect("StartFailed", |frame| {
            matches!(frame, FromGuard::StartFailed { .. }).then_some(())
        });
        guard.hang_up();
        assert_eq!(guard.exit_code(), Some(code));
    }
}

fn the_application_gets_its_token_and_plain_signal_settings() {
    let script = "echo $LOCKKEEPER_LOCK $LOCKKEEPER_FENCING_TOKEN >env; exec cat /proc/self/status >status";
    let mut guard = Guard::run(&["subreaper"], script);
    guard.grant(A, true, false, 60_000, 60_000);
    assert_eq!(guard.expect_exited(A), 0);
    let environment = std::fs::read_to_string(guard.file("env")).expect("written");
    assert_eq!(environment, format!("/test {A}\n"));
    let status = std::fs::read_to_string(guard.file("status")).expect("written");
    assert_eq!(signal_mask(&status, "SigBlk"), 0);
    // What was ignored when the guard was started (`nohup`) stays so, but not what Rust ignores.
    // The C library of the process that started the guard may have ignored its own 32 and 33.
    let own = std::fs::read_to_string("/proc/self/status").expect("read");
    let passed_on = !(SIGPIPE | 1 << 31 | 1 << 32);
    let [own, applications] = [own, status].map(|status| signal_mask(&status, "SigIgn"));
    assert_eq!(applications & SIGPIPE, 0);
    assert_eq!(own & passed_on, applications & passed_on);
}

const SIGPIPE: u64 = 1 << (Signal::PIPE.as_raw() - 1);

fn signal_mask(status: &str, field: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .expect("a field");
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("a mask")
}

fn signals_to_the_guard_reach_the_application_and_the_keeper() {
    let script = "for s in HUP USR1 USR2 WINCH TERM; do trap \"echo $s >>got\" $s; done
        echo >ready; while :; do sleep 0.01; done";
    let mut guard = Guard::run(&["subreaper"], script);
    guard.begin(A, 60_000, 60_000);
    until("the traps are set", || guard.file("ready").exists());
    let mut expected = String::new();
    for (name, signal) in [
        ("HUP", Signal::HUP),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
        ("TERM", Signal::TERM),
    ] {
        guard.signal(signal);
        expected += &format!("{name}\n");
        until(name, || {
            std::fs::read_to_string(guard.file("got")).is_ok_and(|got| got == expected)
        });
    }
    // To an application that runs SIGHUP may mean new settings: only SIGTERM asks for an end.
    let signo = guard.expect("EndWanted", |frame| match frame {
        FromGuard::EndWanted { signo } => Some(signo),
        _ => None,
    });
    assert_eq!(i32::from(signo), Signal::TERM.as_raw());
}

fn the_application_is_started_again_for_every_new_grant() {
    let mut guard = Guard::run(
        &["subreaper"],
        "echo $LOCKKEEPER_FENCING_TOKEN >>tokens; exec sleep 1000",
    );
    let written = |guard: &Guard, lines: usize| {
        let tokens = std::fs::read_to_string(guard.file("tokens")).unwrap_or_default();
        tokens.lines().count() == lines
    };
    guard.begin(A, 60_000, 60_000);
    until("one line", || written(&guard, 1));
    // The old one is gone before the new one starts.
    guard.grant(B, true, false, 60_000, 60_000);
    guard.expect_gone(A);
    guard.expect_started(B);
    until("two lines", || written(&guard, 2));
    guard.send(ToGuard::Revoke { token: B });
    guard.expect_gone(B);
    guard.begin(A, 60_000, 60_000);
    until("three lines", || written(&guard, 3));
    let tokens = std::fs::read_to_string(guard.file("tokens")).expect("written");
    assert_eq!(tokens, format!("{A}\n{B}\n{A}\n"));
}

fn a_guard_with_nothing_to_guard_ends_with_its_keeper() {
    let mut guard = Guard::run(&["subreaper"], "exec sleep 1000");
    guard.hang_up();
    assert_eq!(guard.exit_code(), Some(70));
}

fn a_guard_with_a_socket_path_comes_back_to_a_new_keeper() {
    if !can_unshare() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("guard.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    let script = "exec $recorder role:record record";
    let mut guard = Guard::connecting(&NAMESPACE, &["pid1"], &path, &listener, script);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let pids = children(guard_pid(&guard));

    guard.hang_up();
    assert_eq!(
        guard.keeper(listener.accept().expect("the guard again").0),
        Some(A)
    );
    assert!(pids.iter().copied().all(is_alive));

    // A keeper that is away while the guard tries: it tries again.
    drop(listener);
    std::fs::remove_file(&path).expect("removed");
    guard.hang_up();
    std::thread::sleep(Duration::from_millis(300));
    let listener = UnixListener::bind(&path).expect("bound");
    assert_eq!(
        guard.keeper(listener.accept().expect("the guard again").0),
        Some(A)
    );
    guard.send(ToGuard::Finish { code: 9 });
    assert_eq!(guard.exit_code(), Some(9));
    assert!(!pids.into_iter().any(is_alive));
}

fn a_frame_that_is_not_understood_closes_the_connection() {
    let mut guard = Guard::run(&["subreaper"], "exec $recorder role:record record");
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 1);
    let mut unknown = ToGuard::Revoke { token: A }.encode();
    unknown[1] = 0x80;
    guard.send_bytes(&unknown);
    assert_eq!(guard.recv(), None);
    assert!(pids.into_iter().all(is_alive), "it was acted on");
}

fn finish_stops_everything_and_sets_the_exit_code() {
    let mut guard = Guard::run(
        &["subreaper"],
        "trap '' TERM; record record-a & exec $recorder role:record record-b",
    );
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 2);
    guard.send(ToGuard::Finish { code: 88 });
    guard.expect_gone(A);
    assert_eq!(guard.exit_code(), Some(88));
    assert!(!pids.into_iter().any(is_alive));
}
