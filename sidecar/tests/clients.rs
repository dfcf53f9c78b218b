//! `lockkeeper status`, `wait` and `release`, as processes, against a served socket.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lockkeeper_daemon::duration;
use lockkeeper_lock::{BootInstant, LockState, LockStatus, Pod, TookOver};
use served::{PATIENCE, Served, held, waiting};

#[path = "support/served.rs"]
mod served;

fn lockkeeper(socket: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(words).env_clear().env("LOCKKEEPER_SOCKET", socket);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Exit code, stdout and stderr.
fn run(socket: &Path, words: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = lockkeeper(socket, words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn exit_code(mut child: Child) -> i32 {
    let end = BootInstant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap();
        }
        if BootInstant::now() >= end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn status_says_how_long_the_holder_may_be_silent_and_whose_place_it_has_taken() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let mut of = TookOver {
        contender: "_c_6f1d-lock-0000000007".to_owned(),
        pod: None,
        silent_millis: 8_612,
    };
    let told = |of: &TookOver| {
        served.publish(LockStatus {
            lease_duration: Some(Duration::from_millis(8_500)),
            took_over: Some(of.clone()),
            ..held(Duration::from_secs(60))
        });
        run(&served.socket, &["status"]).1
    };
    let text = told(&of);
    for line in [
        "\nlease      8500ms without a renewal, then the next contender may take our place\n",
        "\ntook over  from _c_6f1d-lock-0000000007, which was silent for 8612ms\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    of.pod = Some(Pod {
        namespace: "shop".to_owned(),
        name: "report-1".to_owned(),
        uid: "u-1".to_owned(),
        node: "n1".to_owned(),
    });
    let text = told(&of);
    let line = "\ntook over  from shop/report-1 on n1, which was silent for 8612ms\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn status_says_nothing_of_a_lease_duration_that_is_not_known_while_a_keeper_comes_back() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let left = LockStatus {
        state: LockState::Suspended,
        session: None,
        ..held(Duration::from_secs(60))
    };
    served.publish(left.clone());
    let text = run(&served.socket, &["status"]).1;
    assert!(
        text.contains("\nremaining  ") && !text.contains("\nlease"),
        "{text}"
    );
    let lease_duration = Some(Duration::from_millis(8_500));
    served.publish(LockStatus {
        lease_duration,
        ..left
    });
    let text = run(&served.socket, &["status"]).1;
    assert!(text.contains("\nlease      8500ms without a renewal"), "{text}");
}

#[test]
fn status_with_watch_shows_the_lock_again_after_each_change_and_ends_with_69_when_the_keeper_is_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let mut child = lockkeeper(&served.socket, &["status", "--watch", "-o", "json"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut state = || {
        let line = lines.next().expect("it goes on").unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["state"].clone()
    };
    assert_eq!(state(), "Waiting");
    served.publish(held(Duration::from_secs(60)));
    assert_eq!(state(), "Held");
    served.publish(waiting(1));
    assert_eq!(state(), "Waiting");
    drop(served);
    assert_eq!(exit_code(child), 69);
}

#[test]
fn status_is_readable_and_good_whether_or_not_the_lock_is_held() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let (code, out, err) = run(&served.socket, &["status"]);
    assert_eq!((code, &*err), (0, ""));
    assert_eq!(
        out,
        "lock       /locks/report\n\
         state      Waiting (waiting in the queue, 2 before us)\n\
         access     exclusive\n\
         stop grace 3s\n\
         lease      off: only the end of the session frees our place\n\
         session    0x10000abc\n"
    );
    let published = BootInstant::now();
    served.publish(held(Duration::from_secs(60)));
    let (code, out, _) = run(&served.socket, &["status"]);
    let took = BootInstant::now() - published;
    assert_eq!(code, 0);
    let (_, remaining) = out
        .split_once("\ntoken      4294967331\nremaining  ")
        .expect(&out);
    let remaining = duration::parse(remaining.split(' ').next().unwrap()).unwrap();
    // Without the margin of 350 ms, and in whole milliseconds.
    let most = Duration::from_millis(59_650);
    assert!(
        remaining <= most && remaining + took + Duration::from_millis(1) >= most,
        "{out}"
    );
    let (code, out, _) = run(&served.socket, &["status", "-o", "JSON"]);
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&json["state"], out.ends_with("}\n")),
        (&serde_json::json!("Held"), true)
    );
}

#[test]
fn a_keeper_that_is_not_there_is_said_with_the_path_it_was_looked_for() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("none.sock");
    for command in ["status", "release"] {
        let (code, out, err) = run(&socket, &[command]);
        assert_eq!((code, &*out), (69, ""));
        let start = format!(
            "lockkeeper: no keeper answers on {}: No such file",
            socket.display()
        );
        assert!(err.starts_with(&start) && err.lines().count() == 1, "{err}");
    }
}

#[test]
fn what_is_not_a_keeper_is_not_believed() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("other.sock");
    for (answer, message) in [
        ("SSH-2.0-x\r\n", "does not speak HTTP: is it a keeper?"),
        ("", "does not speak HTTP: is it a keeper?"),
        (
            "HTTP/1.0 200 OK\r\n\r\n{}",
            "the answer is not one of a keeper of this version",
        ),
        (
            "HTTP/1.0 502 Bad\r\n\r\n<html>",
            "does not speak as a keeper (status 502)",
        ),
    ] {
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap());
            while request.read_line(&mut String::new()).unwrap() > 2 {}
            std::io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
        });
        let (code, _, err) = run(&socket, &["status"]);
        other.join().unwrap();
        assert_eq!(code, 69, "{err}");
        assert!(
            err.contains(message) && err.lines().count() == 1,
            "{answer:?}: {err}"
        );
        std::fs::remove_file(&socket).unwrap();
    }
}

#[test]
fn wait_ends_when_the_state_is_reached_and_not_before() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    // One look that takes 100 ms at most: a machine with much to do needs another one.
    let looks = (0..10).map(|_| run(&served.socket, &["wait", "--for", "queued", "--timeout", "0"]));
    let errors: Vec<_> = looks.take_while(|(code, ..)| *code != 0).collect();
    assert!(errors.len() < 10, "{errors:?}");

    let mut child = lockkeeper(&served.socket, &["wait"]).spawn().unwrap();
    served.publish(waiting(1));
    let (code, _, err) = run(&served.socket, &["wait", "--timeout", "3s"]);
    assert_eq!(code, 81);
    assert_eq!(
        err,
        "lockkeeper: the lock was not held within 3s: it is waiting in the queue, 1 before us\n"
    );
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    served.publish(held(Duration::from_secs(60)));
    assert_eq!(exit_code(child), 0);

    let child = lockkeeper(&served.socket, &["wait", "--for", "released"])
        .spawn()
        .unwrap();
    served.publish(LockStatus {
        state: LockState::Releasing,
        ..held(Duration::from_secs(60))
    });
    let (code, ..) = run(
        &served.socket,
        &["wait", "--for", "released", "--timeout", "200ms"],
    );
    assert_eq!(code, 81, "the application may still run");
    served.publish(LockStatus::new());
    assert_eq!(exit_code(child), 0);
}

#[test]
fn wait_outlives_a_keeper_that_is_not_there_yet_and_one_that_is_restarted() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("lock.sock");
    let mut child = lockkeeper(&socket, &["wait"]).spawn().unwrap();
    let mut notice = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    notice.read_line(&mut line).unwrap();
    assert!(line.ends_with("; waiting for it\n"), "{line}");
    drop(Served::start(scratch.path()));
    let served = Served::start(scratch.path());
    served.publish(held(Duration::from_secs(60)));
    assert_eq!(exit_code(child), 0);
    let mut rest = String::new();
    notice.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "it says so once");
}

#[test]
fn wait_gives_up_in_time_on_a_keeper_that_never_appears() {
    let scratch = tempfile::tempdir().unwrap();
    let (code, _, err) = run(&scratch.path().join("none.sock"), &["wait", "--timeout", "0"]);
    assert_eq!(code, 69);
    assert!(
        err.starts_with("lockkeeper: the lock was not held within 0s: no keeper answers on "),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
}

#[test]
fn release_says_what_became_of_it() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    let (code, out, err) = run(&served.socket, &["release"]);
    assert_eq!((code, &*out), (77, ""));
    assert!(
        err.contains("the lock is not held, so there is nothing to release"),
        "{err}"
    );

    served.publish(held(Duration::from_secs(60)));
    let child = lockkeeper(&served.socket, &["release"]).spawn().unwrap();
    served.next_command().send(Ok(())).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "the application was stopped and the lock released; its keeper queues again at the end\n"
    );

    let child = lockkeeper(&served.socket, &["release"]).spawn().unwrap();
    served
        .next_command()
        .send(Err("the application is still there".to_owned()))
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "lockkeeper: the application is still there\n"
    );
}
