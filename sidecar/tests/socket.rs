//! The calls on a real socket.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lockkeeper_lock::{LockState, LockStatus};
use lockkeeper_sidecar::peer::{UserName, Users};
use serde_json::{Value, json};
use served::eventually::{eventually, until};
use served::{PATIENCE, Served, body, held, request, waiting};

#[path = "support/served.rs"]
mod served;

const RELEASE: &str = "POST /v1/lock/release HTTP/1.1\r\nhost: lock\r\n\r\n";

struct Events(BufReader<UnixStream>);

impl Events {
    fn open(served: &Served) -> Self {
        let mut stream = served.connect();
        stream.write_all(b"GET /v1/lock/events HTTP/1.0\r\n\r\n").unwrap();
        let mut events = Self(BufReader::new(stream));
        let head: String = std::iter::from_fn(|| events.line())
            .take_while(|line| line != "\r\n")
            .collect();
        assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
        assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
        events
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.0.read_line(&mut line).unwrap() > 0).then_some(line)
    }

    /// The next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(data) = self.line()?.strip_prefix("data: ") {
                assert_eq!(
                    self.line().as_deref(),
                    Some("\n"),
                    "an event ends with an empty line"
                );
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[test]
fn the_lock_is_described_with_its_token_only_while_it_is_held() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    assert_eq!(
        served.lock(),
        json!({
            "lock": "/locks/report", "state": "Waiting", "access": "exclusive", "position": 2,
            "stopBudgetMillis": 3000, "session": "0x10000abc"
        })
    );
    served.publish(held(Duration::from_secs(60)));
    let mut lock = served.lock();
    let remaining = lock["remainingMillis"].take().as_u64().unwrap();
    assert!((1..=59_650).contains(&remaining), "{remaining}");
    assert_eq!(
        lock,
        json!({
            "lock": "/locks/report", "state": "Held", "access": "exclusive", "position": 0,
            "fencingToken": 4_294_967_331_i64, "remainingMillis": null,
            "stopBudgetMillis": 3000, "session": "0x10000abc"
        })
    );
    // It is counted when it is asked for.
    until("the remaining time goes on", || {
        served.lock()["remainingMillis"].as_u64().unwrap() != remaining
    });
}

#[test]
fn events_come_at_once_and_after_every_change_and_end_with_the_server() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    let mut events = Events::open(&served);
    assert_eq!(events.next().unwrap()["position"], 2);
    served.publish(waiting(1));
    assert_eq!(events.next().unwrap()["position"], 1);
    served.publish(held(Duration::from_secs(60)));
    let event = events.next().unwrap();
    assert_eq!(
        (&event["state"], &event["fencingToken"]),
        (&json!("Held"), &json!(4_294_967_331_i64))
    );
    served.publish(LockStatus {
        state: LockState::Suspended,
        ..held(Duration::from_secs(60))
    });
    assert_eq!(events.next().unwrap()["state"], "Suspended");
    served.stop();
    assert_eq!(events.next(), None);
    assert!(!served.socket.exists(), "the socket's file is removed at the end");
}

#[test]
fn followers_are_told_when_the_deadline_passes_even_if_nobody_publishes_it() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    // The stream may be open when the deadline is over: then once more.
    let held_at_first = (0..10).find_map(|_| {
        served.publish(held(Duration::from_millis(850)));
        let mut events = Events::open(&served);
        (events.next().unwrap()["state"] == "Held").then_some(events)
    });
    let mut events = held_at_first.expect("it is held in one of ten rounds");
    let event = events.next().unwrap();
    assert_eq!(
        (&event["state"], &event["fencingToken"]),
        (&json!("Lost"), &Value::Null)
    );
    assert_eq!(served.lock()["state"], "Lost");
}

#[test]
fn nothing_is_held_once_the_keeper_is_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    served.publish(held(Duration::from_secs(60)));
    let mut events = Events::open(&served);
    assert_eq!(events.next().unwrap()["state"], "Held");
    drop(served.status.take());
    assert_eq!(events.next().unwrap()["state"], "Lost");
    assert_eq!(events.next(), None, "the keeper is gone, so no event follows");
    assert_eq!(served.lock()["fencingToken"], Value::Null);
    assert!(served.ask(RELEASE).starts_with("HTTP/1.1 409 "));
}

#[test]
fn a_release_is_answered_when_it_is_confirmed() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    served.publish(held(Duration::from_secs(60)));
    let mut client = served.connect();
    client.write_all(RELEASE.as_bytes()).unwrap();
    let confirm = served.next_command();
    let second = served.ask(RELEASE);
    assert!(second.starts_with("HTTP/1.1 409 "), "{second}");
    assert!(second.contains("is being released already"), "{second}");
    confirm.send(Ok(())).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(body(&answer), r#"{"released":true}"#);
}

#[test]
fn a_release_that_is_not_possible_or_not_confirmed_says_why() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    let answer = served.ask(RELEASE);
    assert!(answer.starts_with("HTTP/1.1 409 "), "{answer}");
    assert!(
        body(&answer).contains("it is waiting in the queue, 2 before us"),
        "{answer}"
    );

    served.publish(held(Duration::from_secs(60)));
    let mut client = served.connect();
    client.write_all(RELEASE.as_bytes()).unwrap();
    served
        .next_command()
        .send(Err("the application did not end".to_owned()))
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert_eq!(body(&answer), r#"{"error":"the application did not end"}"#);

    served.stop();
    let mut served = Served::start_with(scratch.path(), Duration::from_millis(300));
    served.publish(held(Duration::from_secs(60)));
    let answer = served.ask(RELEASE);
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(body(&answer).contains("not confirmed within 300ms"), "{answer}");

    drop(served.commands.take());
    assert!(served.ask(RELEASE).starts_with("HTTP/1.1 503 "));
}

#[test]
fn a_client_that_gives_up_on_a_release_does_not_stop_it() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    served.publish(held(Duration::from_secs(60)));
    let mut client = served.connect();
    client.write_all(RELEASE.as_bytes()).unwrap();
    let confirm = served.next_command();
    drop(client);
    let second = served.ask(RELEASE);
    assert!(second.contains("is being released already"), "{second}");
    confirm.send(Ok(())).expect("the server still waits for it");

    // And the next one can begin as soon as that is confirmed.
    let third = std::thread::scope(|scope| {
        let third = scope.spawn(|| {
            let is_free = |answer: &String| !answer.contains("is being released already");
            eventually("the next one begins", || {
                Some(request(&served.socket, RELEASE)).filter(is_free)
            })
        });
        let confirm = served::step_down(served.commands.as_mut().unwrap());
        confirm.send(Ok(())).unwrap();
        third.join().unwrap()
    });
    assert!(third.starts_with("HTTP/1.1 200 "), "{third}");
}

#[test]
fn a_client_that_shuts_its_side_down_after_asking_is_answered() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    let ask = |served: &Served, request: &str| {
        let mut client = served.connect();
        client.write_all(request.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        client
    };
    let answer = |mut client: UnixStream| {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    for _ in 0..200 {
        let answer = answer(ask(&served, "GET /v1/lock HTTP/1.1\r\nhost: lock\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
    }
    served.publish(held(Duration::from_secs(60)));
    let client = ask(&served, RELEASE);
    served.next_command().send(Ok(())).unwrap();
    assert!(answer(client).starts_with("HTTP/1.1 200 "));
}

#[test]
fn wrong_paths_and_methods_are_refused_with_the_right_ones() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let answer = served.get("/v2/lock");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(
        body(&answer).contains("there is no /v2/lock here; there is GET /v1/lock,"),
        "{answer}"
    );
    for (request, allowed) in [
        ("GET /v1/lock/release", "POST"),
        ("POST /v1/lock", "GET"),
        ("DELETE /v1/lock/events", "GET"),
    ] {
        let answer = served.ask(&format!("{request} HTTP/1.1\r\nhost: lock\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        assert!(answer.contains(&format!("allow: {allowed}\r\n")), "{answer}");
        assert!(
            body(&answer).contains(&format!("accepts {allowed}, not")),
            "{answer}"
        );
    }
    assert!(served.ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

#[test]
fn another_user_may_look_and_not_change_anything_unless_it_is_named() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("needs root to become another user");
    }
    // What the program does at the socket as another user.
    let ask = |served: &Served, words: &[&str]| {
        let directory = served.socket.parent().unwrap();
        let open = |path: &Path| std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        open(directory);
        let program = directory.join("lockkeeper");
        if !program.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_lockkeeper"), &program).unwrap();
            open(&program);
        }
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command
            .arg(program)
            .args(words)
            .arg("--socket")
            .arg(&served.socket);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    served.publish(held(PATIENCE));
    assert_eq!(ask(&served, &["status"]).0, Some(0));
    for words in [
        &["release"][..],
        &["terminating"],
        &["release", "--abandon-survivors"],
    ] {
        let (code, said) = ask(&served, words);
        assert_eq!(code, Some(77), "{words:?}: {said}");
        assert!(
            said.contains("user 65534 may look at this lock but not change it"),
            "{said}"
        );
    }
    assert!(
        served.commands.as_mut().unwrap().try_recv().is_err(),
        "the keeper was asked"
    );

    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start_for(scratch.path(), Users::with(&[UserName::Id(65534)]));
    served.publish(held(PATIENCE));
    let mut commands = served.commands.take().unwrap();
    let keeper = std::thread::spawn(move || served::step_down(&mut commands).send(Ok(())));
    assert_eq!(ask(&served, &["release"]).0, Some(0));
    keeper.join().unwrap().unwrap();
    let (code, said) = ask(&served, &["release", "--abandon-survivors"]);
    assert_eq!(code, Some(77), "{said}");
    assert!(
        said.contains("may look at this lock"),
        "that is for root and the keeper's own user: {said}"
    );
}
