//! `lockkeeper run` inside an application that already runs under the same lock: as a process,
//! against a served socket. There is no ensemble: what would wait for the lock cannot get it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use lockkeeper_lock::{LockState, LockStatus};
use served::eventually::eventually;
use served::{PATIENCE, Served};

#[path = "support/served.rs"]
mod served;

const CONNECT: &str = "unknown.invalid:2181";

/// As [`served::held`] publishes it.
const TOKEN: i64 = 4_294_967_331;

fn held() -> LockStatus {
    served::held(PATIENCE)
}

/// Runs `words` in the environment that the application of the served lock has, but for `changes`.
fn nested(socket: &Path, words: &[&str], changes: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command
        .arg("run")
        .args(words)
        .env("LOCKKEEPER_CONNECT", CONNECT)
        .env("LOCKKEEPER_HELD_CONNECT", CONNECT)
        .env("LOCKKEEPER_LOCK", "/locks/report")
        .env("LOCKKEEPER_SOCKET", socket)
        .env("LOCKKEEPER_FENCING_TOKEN", TOKEN.to_string())
        .envs(changes.iter().copied())
        .stdin(Stdio::null());
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

const TELL: [&str; 4] = ["--", "sh", "-c", "echo $LOCKKEEPER_FENCING_TOKEN $PPID; exit 7"];

#[test]
fn a_run_within_a_run_of_the_same_lock_starts_at_once_under_the_token_that_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    for state in [LockState::Held, LockState::Suspended] {
        served.publish(LockStatus { state, ..held() });
        let (code, out, err) = nested(&served.socket, &TELL, &[]);
        // No guard between: its parent is this test.
        let expected = format!("{TOKEN} {}\n", std::process::id());
        assert_eq!((code, out, err), (7, expected, String::new()), "{state:?}");
    }
}

#[test]
fn a_job_that_kept_the_environment_and_runs_elsewhere_waits_for_the_lock_like_everybody_else() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    served.publish(held());
    // Its parent ends at once, as that of a job of `at` or of a daemon does, and init becomes its parent.
    let said = directory.path().join("said");
    let job = directory.path().join("job");
    let words = "$LOCKKEEPER run -- echo started >$SAID 2>&1; echo code $? >>$SAID";
    std::fs::write(&job, words).unwrap();
    let status = Command::new("sh")
        .args(["-c", "(sh $JOB &) &"])
        .env("JOB", job)
        .env("SAID", &said)
        .env("LOCKKEEPER", env!("CARGO_BIN_EXE_lockkeeper"))
        .env("LOCKKEEPER_CONNECT", CONNECT)
        .env("LOCKKEEPER_HELD_CONNECT", CONNECT)
        .env("LOCKKEEPER_LOCK", "/locks/report")
        .env("LOCKKEEPER_SOCKET", &served.socket)
        .env("LOCKKEEPER_FENCING_TOKEN", TOKEN.to_string())
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let text = eventually("its end", || {
        let text = std::fs::read_to_string(&said).ok()?;
        Some(text).filter(|text| text.contains("code "))
    });
    // It asks for the lock, of an ensemble that is not there.
    assert!(
        text.contains(".invalid:2181 of --connect has no address"),
        "{text}"
    );
    assert!(text.contains("code 69") && !text.contains("started"), "{text}");
}

/// Serves as user 65534: a user is one of a thread, and of the threads that it starts.
fn as_another_user(directory: &Path, start: impl FnOnce(&Path) -> Served + Send) -> Served {
    std::fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    let start = || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
        start(directory)
    };
    std::thread::scope(|scope| scope.spawn(start).join().unwrap())
}

/// Once the outer run has ended, every user can take the path below /tmp.
#[test]
fn what_another_user_than_root_and_our_own_says_at_the_socket_is_not_believed() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("needs root to serve as another user");
    }
    let directory = tempfile::tempdir().unwrap();
    let served = as_another_user(directory.path(), Served::start);
    // All of it is true, but that cannot be known.
    served.publish(held());
    let (code, out, err) = nested(&served.socket, &TELL, &[]);
    assert_eq!((code, out.as_str()), (69, ""), "{err}");
    let told = format!("user 65534 serves {}", served.socket.display());
    assert!(err.contains(&told), "{err}");
    assert!(
        err.contains(".invalid:2181 of --connect has no address"),
        "it asks for the lock: {err}"
    );
}

#[test]
fn a_run_within_a_run_that_may_pause_it_is_refused() {
    for pause in [["--on-suspect", "pause"], ["--on-loss", "pause"]] {
        let directory = tempfile::tempdir().unwrap();
        let served = Served::start_as(directory.path(), &pause);
        served.publish(held());
        let (code, out, err) = nested(&served.socket, &TELL, &[("LOCKKEEPER_LOCK", "/locks/another")]);
        assert_eq!((code, out.as_str()), (64, ""), "{err}");
        assert!(
            err.contains("which holds /locks/report, may pause this run"),
            "{err}"
        );
        // Of the same lock it has no guard of its own.
        assert_eq!(nested(&served.socket, &TELL, &[]).0, 7);
    }
}

/// The keeper of a pod sees no process of the application; and all that has its socket is in the container that is paused.
#[test]
fn a_run_within_a_pod_that_may_pause_it_is_refused() {
    let another = [("LOCKKEEPER_LOCK", "/locks/another")];
    for pause in [["--on-suspect", "pause"], ["--on-loss", "pause"]] {
        let directory = tempfile::tempdir().unwrap();
        let served = Served::start_in_pod(directory.path(), &pause);
        served.publish(held());
        let (code, out, err) = nested(&served.socket, &TELL, &another);
        assert_eq!((code, out.as_str()), (64, ""), "{err}");
        assert!(
            err.contains("may pause this run together with its guard"),
            "{err}"
        );
    }
    // The sidecar is mostly of another user than the application.
    if rustix::process::geteuid().is_root() {
        let directory = tempfile::tempdir().unwrap();
        let pause = ["--on-loss", "pause"];
        let served = as_another_user(directory.path(), |path| Served::start_in_pod(path, &pause));
        served.publish(held());
        let (code, out, err) = nested(&served.socket, &TELL, &another);
        assert_eq!((code, out.as_str()), (64, ""), "{err}");
    } else {
        lockkeeper_skip::skip("needs root to serve as another user");
    }
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start_in_pod(directory.path(), &[]);
    served.publish(held());
    let (code, out, err) = nested(&served.socket, &TELL, &another);
    assert_eq!((code, out.as_str()), (69, ""), "{err}");
    assert!(
        err.contains(".invalid:2181 of --connect has no address"),
        "it asks for its lock: {err}"
    );
}

#[test]
fn a_run_within_a_run_that_names_the_servers_in_another_way_is_inside_or_refused_and_never_waits_for_itself()
{
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    served.publish(held());
    let with = |connect| nested(&served.socket, &TELL, &[("LOCKKEEPER_CONNECT", connect)]);
    let (code, _, err) = with("other.invalid:2181,unknown.invalid");
    assert_eq!((code, err), (7, String::new()));
    let (code, out, err) = with("other.invalid:2181");
    assert_eq!((code, out.as_str()), (64, ""), "{err}");
    assert!(
        err.contains("holds /locks/report at unknown.invalid:2181")
            && err.contains("give both the same --connect"),
        "{err}"
    );
}

#[test]
fn a_run_within_a_run_that_has_lost_the_lock_starts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let lost = LockStatus {
        state: LockState::Lost,
        ..held()
    };
    let another = LockStatus {
        token: Some(lockkeeper_lock::FencingToken(TOKEN + 1)),
        ..held()
    };
    for status in [lost, another] {
        served.publish(status);
        let (code, out, err) = nested(&served.socket, &TELL, &[]);
        assert_eq!((code, out.as_str()), (75, ""), "{err}");
        assert!(err.contains("/locks/report was held by the outer"), "{err}");
    }
}

#[test]
fn a_run_within_a_run_that_takes_the_lock_for_another_kind_is_refused_with_both_settings() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    served.publish(held());
    let outside = "/locks/report of kind exclusive with maxHolders 1";
    for (options, inside) in [
        (["--max-holders", "3"], "kind exclusive with maxHolders 3"),
        (["--access", "write"], "kind readWrite"),
    ] {
        let words = [&options[..], &TELL[..]].concat();
        let (code, out, err) = nested(&served.socket, &words, &[]);
        assert_eq!((code, out.as_str()), (64, ""), "{err}");
        assert!(err.contains(outside) && err.contains(inside), "{err}");
    }
}

#[test]
fn a_command_that_cannot_be_run_within_a_run_has_the_code_of_a_shell() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    served.publish(held());
    for (command, expected) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
        let (code, _, err) = nested(&served.socket, &["--", command], &[]);
        assert_eq!(code, expected, "{err}");
        assert!(err.contains(command), "{err}");
    }
}

#[test]
fn another_lock_is_asked_for_and_so_is_this_one_when_the_outer_run_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    served.publish(held());
    let gone = directory.path().join("gone.sock");
    let elsewhere = [
        ("LOCKKEEPER_LOCK", "/locks/other"),
        ("LOCKKEEPER_CONNECT", "unknown.invalid:2181/chroot"),
        ("LOCKKEEPER_SOCKET", gone.to_str().unwrap()),
    ];
    for change in elsewhere {
        let (code, out, err) = nested(&served.socket, &TELL, &[change]);
        assert_eq!((code, out.as_str()), (69, ""), "{err}");
        assert!(err.contains(".invalid:2181 of --connect has no address"), "{err}");
    }
}
