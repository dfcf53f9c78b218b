//! `lockkeeper probe`, as a kubelet executes it in the application's container, and `terminating`.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::probes::AppProbes;
use lockkeeper_sidecar::probes::health::Running;
use lockkeeper_sidecar::socket::Command as Asked;
use served::{PATIENCE, Served};

#[path = "support/served.rs"]
mod served;

fn serve(directory: &Path, probes: &str) -> Served {
    Served::start_probing(directory, PATIENCE, AppProbes::parse(Some(probes), None).unwrap())
}

fn run_since(served: &Served, start: u64, seconds: u64) {
    let since = BootInstant::now().saturating_sub(Duration::from_secs(seconds));
    served.app.send_replace(Some(Running { start, since }));
}

/// Exit code and stderr of a command of the binary, in a directory that has both sockets.
fn lockkeeper(directory: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(words)
        .env_clear()
        .env("PATH", "/bin:/usr/bin")
        .env("LOCKKEEPER_SOCKET", directory.join("lock.sock"))
        .current_dir(directory)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn probe(directory: &Path, kind: &str, script: &str) -> Option<i32> {
    lockkeeper(directory, &["probe", "--kind", kind, "--", "sh", "-c", script]).0
}

const KINDS: [&str; 4] = ["liveness", "readiness", "startup", "pre-stop"];

#[test]
fn a_command_is_executed_only_while_the_application_runs_and_its_code_is_passed_on() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "{}");
    for kind in KINDS {
        assert_eq!(
            probe(scratch.path(), kind, "echo ran >ran; exit 7"),
            Some(0),
            "{kind}"
        );
        assert!(!scratch.path().join("ran").exists(), "{kind} in standby");
    }
    run_since(&served, 1, 0);
    for kind in KINDS {
        assert_eq!(probe(scratch.path(), kind, "exit 7"), Some(7), "{kind}");
        assert_eq!(probe(scratch.path(), kind, "exit 0"), Some(0), "{kind}");
    }
}

#[test]
fn a_command_that_is_not_there_fails_as_in_a_shell() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "{}");
    run_since(&served, 1, 0);
    let (code, err) = lockkeeper(
        scratch.path(),
        &["probe", "--kind", "liveness", "--", "/no/such/file"],
    );
    assert_eq!(code, Some(127));
    assert!(err.contains("cannot run \"/no/such/file\""), "{err}");
}

#[test]
fn without_a_keeper_nothing_is_restarted_and_nothing_is_ready() {
    let scratch = tempfile::tempdir().unwrap();
    for (kind, code) in [
        ("liveness", 0),
        ("startup", 0),
        ("pre-stop", 0),
        ("readiness", 69),
    ] {
        assert_eq!(probe(scratch.path(), kind, "exit 7"), Some(code), "{kind}");
    }
}

#[test]
fn a_startup_check_comes_before_the_others_and_its_budget_counts_from_each_start() {
    let scratch = tempfile::tempdir().unwrap();
    let check =
        r#"{"startup":{"exec":{"command":["test","-e","up"]},"timeoutSeconds":20,"failureThreshold":1}}"#;
    let served = serve(scratch.path(), check);
    let probe = |kind| probe(scratch.path(), kind, "test -e healthy");
    run_since(&served, 1, 0);
    assert_eq!((probe("startup"), probe("liveness")), (Some(0), Some(0)));
    assert_eq!(probe("readiness"), Some(69), "not started");

    run_since(&served, 1, 11);
    for kind in ["startup", "liveness", "readiness"] {
        assert_eq!(probe(kind), Some(69), "{kind}: not within its budget");
    }
    std::fs::write(scratch.path().join("up"), "").unwrap();
    assert_eq!(
        probe("readiness"),
        Some(1),
        "up, and says itself that it is not ready"
    );
    assert_eq!(probe("liveness"), Some(1), "up, and not healthy");
    std::fs::write(scratch.path().join("healthy"), "").unwrap();
    assert_eq!((probe("liveness"), probe("readiness")), (Some(0), Some(0)));

    std::fs::remove_file(scratch.path().join("up")).unwrap();
    assert_eq!(probe("liveness"), Some(0), "the check has passed once");
    run_since(&served, 2, 0);
    assert_eq!(probe("readiness"), Some(69), "started anew");
}

#[test]
fn without_a_command_the_keeper_asks_the_application_after_its_startup_check() {
    let scratch = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let check = format!(
        r#"{{"timeoutSeconds":20,"tcpSocket":{{"port":{}}}}}"#,
        listener.local_addr().unwrap().port()
    );
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"liveness":{check},"readiness":{check},
                "startup":{{"exec":{{"command":["test","-e","up"]}},"failureThreshold":1}}}}"#
        ),
    );
    let probe = |kind| lockkeeper(scratch.path(), &["probe", "--kind", kind]).0;
    run_since(&served, 1, 0);
    assert_eq!((probe("liveness"), probe("readiness")), (Some(0), Some(69)));
    run_since(&served, 1, 11);
    assert_eq!(probe("liveness"), Some(69), "not within its budget");

    std::fs::write(scratch.path().join("up"), "").unwrap();
    assert_eq!(probe("readiness"), Some(0), "started, and answers");
    drop(listener);
    for kind in ["liveness", "readiness"] {
        assert_eq!(probe(kind), Some(69), "{kind}: no keeper listens");
    }
}

#[test]
fn a_command_that_is_missing_is_told_where_nobody_else_knows_what_to_ask() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "{}");
    run_since(&served, 1, 0);
    for (kind, name) in [
        ("liveness", "liveness"),
        ("startup", "startup"),
        ("pre-stop", "preStop"),
        ("post-start", "postStart"),
    ] {
        let (code, err) = lockkeeper(scratch.path(), &["probe", "--kind", kind]);
        assert_eq!(code, Some(64));
        assert!(err.contains(&format!("there is no command for {name}")), "{err}");
    }
}

#[test]
fn a_startup_check_that_hangs_is_ended_after_its_own_timeout() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(
        scratch.path(),
        r#"{"startup":{"exec":{"command":["sleep","1000"]},"timeoutSeconds":1,"failureThreshold":9}}"#,
    );
    run_since(&served, 1, 0);
    assert_eq!(probe(scratch.path(), "liveness", "exit 7"), Some(0));
    assert_eq!(probe(scratch.path(), "readiness", "exit 7"), Some(69));
}

#[test]
fn a_hook_after_the_start_is_refused_where_no_guard_would_execute_it() {
    let scratch = tempfile::tempdir().unwrap();
    let _served = serve(scratch.path(), "{}");
    let words = [
        "probe",
        "--guard-socket",
        "guard.sock",
        "--kind",
        "post-start",
        "--",
        "true",
    ];
    let (code, err) = lockkeeper(scratch.path(), &words);
    assert_eq!(code, Some(64));
    assert!(err.contains("is not `lockkeeper guard`"), "{err}");
    assert!(!scratch.path().join("post-start").exists());
}

#[test]
fn a_keeper_that_is_told_of_the_end_of_its_pod_confirms_that_or_says_why_not() {
    for (reply, code) in [(Ok(()), Some(0)), (Err("none of a pod".to_owned()), Some(77))] {
        let scratch = tempfile::tempdir().unwrap();
        let mut served = serve(scratch.path(), "{}");
        let mut commands = served.commands.take().unwrap();
        std::thread::scope(|scope| {
            let told = scope.spawn(|| lockkeeper(scratch.path(), &["terminating"]));
            match commands.blocking_recv().unwrap() {
                Asked::Terminating(answer) => answer.send(reply.clone()).unwrap(),
                other => panic!("{other:?}"),
            }
            let (got, err) = told.join().unwrap();
            assert_eq!(got, code, "{err}");
            if let Err(why) = reply {
                assert!(err.contains(&why), "{err}");
            }
        });
    }
}
