//! The guard beside a container, which it knows by the kubelet's mount.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::link::protocol::{FromGuard, ToGuard};
use rustix::process::{Pid, Resource, Rlimit, Signal};

use crate::harness::{
    A, B, Guard, LONG, assert_in_time, has, is_alive, is_root, last_stamp, shell, state, until, until_paused,
};
use crate::tests;

tests![
    a_container_is_killed_by_the_deadline_and_the_one_beside_it_is_not,
    a_container_without_the_lock_is_killed_as_often_as_it_starts,
    a_container_gets_sigterm_before_the_deadline_in_its_main_process,
    a_container_is_paused_and_resumed,
    a_paused_container_is_not_killed_for_what_is_executed_in_it_but_for_what_is_woken,
    a_container_is_found_by_whatever_path_its_last_words_are_mounted,
    a_process_whose_main_thread_has_ended_is_found,
    what_cannot_be_read_is_never_called_gone,
    a_sidecar_that_cannot_recognise_its_own_container_says_so,
];

/// Something with the mount that the kubelet makes for every container.
pub struct Container {
    pub main: Child,
    /// Source of the mount: what shows it belongs to this one.
    source: String,
}

impl Container {
    /// Runs `script` in the directory of `guard`, in a mount namespace of its own.
    pub fn start(guard: &Guard, name: &str, script: &str) -> Self {
        Self::start_at(guard, name, "termination-log", script)
    }

    /// The same with its last words mounted at this path.
    fn start_at(guard: &Guard, name: &str, log: &str, script: &str) -> Self {
        let source = guard.file(&format!("{}/{name}", containers()));
        std::fs::create_dir_all(&source).expect("a directory");
        let source = source.join("0af3");
        for file in [&source, &guard.file(log)] {
            std::fs::write(file, "").expect("a file");
        }
        let mut command = shell(script);
        let last = command.pop().expect("a script").into_string().expect("text");
        let mount = format!("mount --bind {:?} {:?} || exit 1\n", source, guard.file(log));
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

    pub fn has_ended(&mut self) -> bool {
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

/// Where the kubelet would have the mounts of the pod's containers. A guard looks at all processes of the machine, and
/// other lanes of these tests have guards at the same time: each has a pod of its own.
pub fn containers() -> String {
    format!("pods/{}/containers", std::process::id())
}

/// A guard for the container `app` of its pod.
pub fn guard() -> Option<Guard> {
    let own_mount = format!(
        "mount --bind {}/lockkeeper/77aa own-log && exec \"$@\"",
        containers()
    );
    guard_in(&[
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        &own_mount,
        "sh",
    ])
}

/// The same, started through `prefix`.
pub fn guard_in(prefix: &[&str]) -> Option<Guard> {
    if !is_root() || !has("unshare") || !has("mount") {
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let lease = dir.path().join("lease.env");
    let own = dir.path().join(containers()).join("lockkeeper");
    std::fs::create_dir_all(&own).expect("a directory");
    for file in [own.join("77aa"), dir.path().join("own-log")] {
        std::fs::write(file, "").expect("a file");
    }
    // The sidecar's container has such a mount as well: it tells the pod.
    let lease = lease.to_str().expect("a plain path");
    Some(Guard::start_in(dir, prefix, &["container", "app", lease]))
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
    if guard().is_none() {
        return;
    }
    let (mut guard, _app) = until_paused(|| {
        let mut guard = guard()?;
        guard.grant(A, true, true, 60_000, 60_000);
        guard.expect_started(A);
        let app = Container::start(&guard, "app", TWO);
        guard.recorders("record", 2);
        guard.shorten(A, true, 300, 300);
        guard.is_paused().then_some((guard, app))
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

fn a_paused_container_is_not_killed_for_what_is_executed_in_it_but_for_what_is_woken() {
    // A guard that has to wait for the processor for 0.1 s kills what it has not seen stopped.
    assert!((0..10).any(|_| stays_paused_beside_what_is_executed()));
}

fn stays_paused_beside_what_is_executed() -> bool {
    let Some(mut guard) = guard() else { return true };
    guard.grant(A, true, true, 60_000, 60_000);
    guard.expect_started(A);
    let _app = Container::start(&guard, "app", TWO);
    let pids = guard.recorders("record", 2);
    // Its deadline has come.
    guard.grant(A, false, true, 0, 0);
    if !guard.is_paused() {
        return false;
    }
    // As a probe that is a command, or `kubectl exec`.
    let _executed = Container::start(&guard, "app", "exec $recorder role:record executed");
    if !guard.is_paused() {
        return false;
    }
    assert!(pids.iter().all(|pid| state(*pid) == Some('T')));
    rustix::process::kill_process(pids[0], Signal::CONT).expect("resumed");
    guard.expect_gone(A);
    assert!(!pids.into_iter().any(is_alive));
    true
}

fn a_container_is_found_by_whatever_path_its_last_words_are_mounted() {
    for log in ["var-run/term", "run//term", "a b", "./run/../run/term"] {
        let Some(mut guard) = guard() else { return };
        std::fs::create_dir(guard.file("run")).expect("a directory");
        std::os::unix::fs::symlink("run", guard.file("var-run")).expect("a link");
        guard.begin(A, 60_000, 60_000);
        let mut app = Container::start_at(&guard, "app", log, TWO);
        let pids = guard.recorders("record", 2);
        guard.send(ToGuard::Revoke { token: A });
        guard.expect_gone(A);
        assert!(
            !pids.into_iter().any(is_alive),
            "{log}: something was called gone that is not"
        );
        until("the container's end", || app.has_ended());
    }
}

fn a_process_whose_main_thread_has_ended_is_found() {
    let Some(mut guard) = guard() else { return };
    guard.begin(A, 60_000, 60_000);
    let _app = Container::start(&guard, "app", "exec $recorder role:headless record");
    let headless = guard.recorders("record", 1)[0];
    let mounts = format!("/proc/{headless}/mountinfo");
    until("the end of its main thread", || {
        std::fs::read(&mounts).is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
    });
    let kill_at = BootInstant::now();
    guard.send(ToGuard::Revoke { token: A });
    guard.expect_gone(A);
    let last = last_stamp(&guard.file("record"));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(
        last_stamp(&guard.file("record")),
        last,
        "something was called gone that is not"
    );
    assert_in_time(&guard.file("record"), kill_at);
}

fn what_cannot_be_read_is_never_called_gone() {
    let Some(mut guard) = guard() else { return };
    guard.begin(A, 60_000, 60_000);
    let mut app = Container::start(&guard, "app", TWO);
    let pids = guard.recorders("record", 2);
    // From here on it can open nothing more: EMFILE.
    let none = Rlimit {
        // As few as poll(2) allows for those that it has.
        current: Some(5),
        ..rustix::process::getrlimit(Resource::Nofile)
    };
    let before = rustix::process::prlimit(Some(guard.pid()), Resource::Nofile, none).expect("limited");
    guard.send(ToGuard::Revoke { token: A });
    let is_gone = guard.expect("an answer", |frame| match frame {
        FromGuard::Survivors { .. } => Some(false),
        FromGuard::Gone { .. } => Some(true),
        _ => None,
    });
    assert!(!is_gone, "something was called gone that is not");
    assert!(pids.iter().copied().all(is_alive));
    rustix::process::prlimit(Some(guard.pid()), Resource::Nofile, before).expect("unlimited");
    guard.expect_gone(A);
    until("the container's end", || app.has_ended());
}

fn a_sidecar_that_cannot_recognise_its_own_container_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args([
            "sidecar",
            "--connect",
            "127.0.0.1:1",
            "--lock",
            "/l",
            "--container",
            "app",
        ])
        .output()
        .expect("executed");
    let words = String::from_utf8(output.stderr).expect("text");
    println!("  {}", words.trim());
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(words.lines().count(), 1);
    assert!(words.contains("the container app cannot be told from others"));
}
