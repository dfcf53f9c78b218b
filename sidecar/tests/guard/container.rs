//! The guard beside a container, which it knows by the kubelet's mount.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::guard::protocol::{FromGuard, ToGuard};
use rustix::process::{Pid, Signal};

use crate::harness::{A, B, Guard, LONG, assert_in_time, has, is_root, last_stamp, shell, until};
use crate::tests;

tests![
    a_container_is_killed_by_the_deadline_and_the_one_beside_it_is_not,
    a_container_without_the_lock_is_killed_as_often_as_it_starts,
    a_container_gets_sigterm_before_the_deadline_in_its_main_process,
    a_container_is_paused_and_resumed,
];

/// Something with the mount that the kubelet makes for every container.
struct Container {
    main: Child,
    /// Source of the mount: what shows it belongs to this one.
    source: String,
}

impl Container {
    /// Runs `script` in the directory of `guard`, in a mount namespace of its own.
    fn start(guard: &Guard, name: &str, script: &str) -> Self {
        let source = guard.file(&format!("pods/6f1c/containers/{name}"));
        std::fs::create_dir_all(&source).expect("a directory");
        let source = source.join("0af3");
        for file in [&source, &guard.file("termination-log")] {
            std::fs::write(file, "").expect("a file");
        }
        let mut command = shell(script);
        let last = command.pop().expect("a script").into_string().expect("text");
        let mount = format!(
            "mount --bind {:?} {:?} || exit 1\n",
            source,
            guard.file("termination-log")
        );
        command.push((mount + &last).into());
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .args(command)
            .current_dir(guard.dir.path())
            .spawn()
            .expect("a container");
        Self {
            main: child,
            source: source.to_str().expect("a plain path").to_owned(),
        }
    }

    fn has_ended(&mut self) -> bool {
        self.main.try_wait().expect("waited").is_some()
    }
}

/// Ends everything that is in it.
impl Drop for Container {
    fn drop(&mut self) {
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let mounts = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
            if let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|pid| Pid::from_raw(pid.parse().ok()?))
                && mounts.contains(&self.source)
            {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.main.kill();
        let _ = self.main.wait();
    }
}

/// A guard for the container `app`, which has its termination log in the guard's directory.
fn guard() -> Option<Guard> {
    if !is_root() || !has("unshare") || !has("mount") {
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let [log, lease] = ["termination-log", "lease.env"].map(|name| dir.path().join(name));
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    Some(Guard::start_in(
        dir,
        &["container", "app", &text(&log), &text(&lease)],
    ))
}

const TWO: &str = "trap '' TERM; record record-a & exec $recorder role:record record-main";

fn a_container_is_killed_by_the_deadline_and_the_one_beside_it_is_not() {
    let Some(mut guard) = guard() else { return };
    guard.begin(A, 60_000, 60_000);
    let mut app = Container::start(&guard, "app", TWO);
    let mut other = Container::start(&guard, "app2", "exec $recorder role:record other");
    guard.recorders("record", 2);
    guard.recorders("other", 1);
    let kill_at = BootInstant::now() + Duration::from_millis(100);
    guard.send(ToGuard::Stop { token: A, kill_at });
    guard.expect_gone(A);
    println!(
        "  Gone was read {:?} after the deadline",
        BootInstant::now() - kill_at
    );
    until("the container's end", || app.has_ended());
    assert_in_time(&guard.file("record-a"), kill_at);
    assert_in_time(&guard.file("record-main"), kill_at);
    assert!(!other.has_ended());
}

fn a_container_without_the_lock_is_killed_as_often_as_it_starts() {
    let Some(mut guard) = guard() else { return };
    for _ in 0..3 {
        let started = BootInstant::now();
        let mut app = Container::start(&guard, "app", TWO);
        until("the container's end", || app.has_ended());
        println!("  killed {:?} after it was started", BootInstant::now() - started);
    }
    guard.begin(B, 60_000, 60_000);
    let mut app = Container::start(&guard, "app", "exec $recorder role:record granted");
    guard.recorders("granted", 1);
    // Longer than the longest interval between two searches.
    std::thread::sleep(Duration::from_millis(300));
    assert!(!app.has_ended());
}

fn a_container_gets_sigterm_before_the_deadline_in_its_main_process() {
    let Some(mut guard) = guard() else { return };
    guard.begin(A, 60_000, 60_000);
    let script =
        "trap 'date >done; exit 0' TERM; record record-a & echo >ready; while :; do sleep 0.01; done";
    let mut app = Container::start(&guard, "app", script);
    until("the trap is set", || guard.file("ready").exists());
    guard.send(ToGuard::Stop {
        token: A,
        kill_at: BootInstant::now() + LONG,
    });
    until("the container's end", || app.has_ended());
    assert!(guard.file("done").exists());
}

fn a_container_is_paused_and_resumed() {
    let Some(mut guard) = guard() else { return };
    guard.grant(A, true, true, 800, 800);
    guard.expect_started(A);
    let _app = Container::start(&guard, "app", TWO);
    guard.recorders("record", 2);
    guard.expect("Paused", |frame| {
        matches!(frame, FromGuard::Paused { .. }).then_some(())
    });
    let stood_still = |file: &Path| {
        let last = last_stamp(file);
        std::thread::sleep(Duration::from_millis(100));
        last_stamp(file) == last
    };
    assert!(stood_still(&guard.file("record-main")) && stood_still(&guard.file("record-a")));
    guard.grant(B, true, true, 60_000, 60_000);
    guard.expect_started(B);
    until("it goes on", || !stood_still(&guard.file("record-main")));
}
