//! The hook after each start of the application.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::process::Pid;
use tempfile::TempDir;

use crate::harness::{A, B, Guard, open_for_everybody, until};
use crate::pid1::{NAMESPACE, can_unshare, guard_pid};
use crate::tests;

tests![
    the_hook_runs_after_each_start_with_the_token_of_that_start,
    a_hook_that_fails_ends_the_application_with_its_code,
    a_hook_ends_with_its_application,
    a_hook_of_the_container_before_is_forgotten,
];

/// Where keeper and guard meet.
struct Volume(TempDir);

impl Volume {
    fn new() -> (Self, UnixListener) {
        let volume = Self(tempfile::tempdir().expect("a directory"));
        open_for_everybody(volume.0.path());
        let listener = UnixListener::bind(volume.socket()).expect("a socket");
        (volume, listener)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("guard.sock")
    }

    /// As `lockkeeper probe --kind post-start` leaves it in the container of a guard.
    fn leave(&self, guard: Pid, script: &str) {
        let stat = std::fs::read_to_string(format!("/proc/{guard}/stat")).expect("the guard");
        // Field 22 of proc_pid_stat(5); the third comes after the name.
        let started = stat.rsplit_once(") ").expect("a name").1.split(' ').nth(22 - 3);
        let words = format!("{}\0sh\0-c\0{script}\0", started.expect("a start time"));
        std::fs::write(self.0.path().join("post-start"), words).expect("written");
    }
}

fn start(volume: &Volume, listener: &UnixListener, script: &str) -> Guard {
    Guard::connecting(&NAMESPACE, &["pid1"], &volume.socket(), listener, script)
}

fn the_hook_runs_after_each_start_with_the_token_of_that_start() {
    if !can_unshare() {
        return;
    }
    let (volume, listener) = Volume::new();
    let mut guard = start(&volume, &listener, "exec sleep 1000");
    volume.leave(guard_pid(&guard), "echo $LOCKKEEPER_FENCING_TOKEN >>hooks");
    for (token, count) in [(A, 1), (B, 2)] {
        let lines = || std::fs::read_to_string(guard.file("hooks")).unwrap_or_default();
        assert_eq!(lines().lines().count(), count - 1, "not in standby");
        guard.begin(token, 60_000, 60_000);
        until("the hook has run", || {
            let lines = std::fs::read_to_string(guard.file("hooks")).unwrap_or_default();
            lines.lines().count() == count && lines.ends_with(&format!("{token}\n"))
        });
        guard.send(lockkeeper_sidecar::link::protocol::ToGuard::Revoke { token });
        guard.expect_gone(token);
    }
}

fn a_hook_that_fails_ends_the_application_with_its_code() {
    if !can_unshare() {
        return;
    }
    let (volume, listener) = Volume::new();
    for (hook, code) in [("exit 3", 3), ("exec /no/such/file", 127)] {
        let mut guard = start(&volume, &listener, "echo >ready; exec sleep 1000");
        let ready = guard.file("ready");
        volume.leave(
            guard_pid(&guard),
            &format!("while [ ! -e {} ]; do :; done; {hook}", ready.display()),
        );
        guard.begin(A, 60_000, 60_000);
        assert_eq!(guard.expect_exited(A), code, "{hook}");
    }
}

fn a_hook_ends_with_its_application() {
    if !can_unshare() {
        return;
    }
    let (volume, listener) = Volume::new();
    let mut guard = start(&volume, &listener, "exec sleep 1000");
    let program = crate::harness::own_program();
    volume.leave(
        guard_pid(&guard),
        &format!(
            "setsid {0} role:record record-a & exec {0} role:record record-b",
            program.display()
        ),
    );
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 2);
    let kill_at = guard.shorten(A, false, 300, 400);
    guard.expect_gone(A);
    for name in ["record-a", "record-b"] {
        crate::harness::assert_in_time(&guard.file(name), kill_at);
    }
}

fn a_hook_of_the_container_before_is_forgotten() {
    if !can_unshare() {
        return;
    }
    let (volume, listener) = Volume::new();
    let mut guard = start(&volume, &listener, "sleep 0.3; exit 4");
    // Of another container.
    volume.leave(Pid::INIT, "exit 3");
    guard.begin(A, 60_000, 60_000);
    assert_eq!(guard.expect_exited(A), 4);
    volume.leave(guard_pid(&guard), "exit 3");
    guard.begin(B, 60_000, 60_000);
    assert_eq!(guard.expect_exited(B), 3);
}
