//! Clients that are slow, greedy or hostile do not stop the others.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use served::eventually::until;
use served::{Served, held, waiting};

#[path = "support/served.rs"]
mod served;

#[test]
fn clients_that_never_finish_their_request_do_not_stop_others() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    // More than there are places for.
    let slow: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = served.connect();
            stream.write_all(b"GET /v1/lock HTTP/1.1\r\nhost:").unwrap();
            stream
        })
        .collect();
    let start = BootInstant::now();
    assert_eq!(served.lock()["state"], "Waiting");
    println!(
        "answered after {:?} behind 300 half requests",
        BootInstant::now() - start
    );
    for mut stream in slow {
        // Closed by the server, without an answer or with one that says so.
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            Ok(_) => assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}"),
            // It gave way before the server had read what it sent.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn a_head_of_ten_megabytes_is_refused_after_eight_kilobytes() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let mut stream = served.connect();
    stream.write_all(b"GET /v1/lock HTTP/1.1\r\nx: ").unwrap();
    let chunk = [b'x'; 64 * 1024];
    let sent = (0..160).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(sent < 160, "the whole of it was taken");
    assert_eq!(served.lock()["state"], "Waiting");

    // Just below and above the limit, read to the end.
    for (length, status) in [(4 * 1024, "HTTP/1.1 200 "), (9 * 1024, "HTTP/1.1 431 ")] {
        let answer = served.ask(&format!(
            "GET /v1/lock HTTP/1.1\r\nx: {}\r\n\r\n",
            "x".repeat(length)
        ));
        assert!(answer.starts_with(status), "{length}: {answer}");
    }
}

#[test]
fn followers_that_never_read_cost_only_their_own_place() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let mut deaf: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = served.connect();
            stream
                .write_all(b"GET /v1/lock/events HTTP/1.1\r\nhost: lock\r\n\r\n")
                .unwrap();
            let mut first = [0; 15];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200 OK");
            stream
        })
        .collect();
    for position in 0..20_000 {
        served.publish(waiting(position));
    }
    served.publish(held(Duration::from_secs(60)));
    assert_eq!(served.lock()["state"], "Held");

    let refused = served.get("/v1/lock/events");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(
        refused.contains("16 clients of users that may change the lock follow the events already"),
        "{refused}"
    );

    // One goes away: its place is free as soon as an event could not be written to it.
    drop(deaf.pop());
    let mut positions = 0..;
    until("the place is free", || {
        served.publish(waiting(positions.next().expect("there are enough")));
        let mut stream = served.connect();
        stream
            .write_all(b"GET /v1/lock/events HTTP/1.1\r\nhost: lock\r\n\r\n")
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        &first == b"HTTP/1.1 200"
    });
}

#[test]
fn a_server_that_ends_does_not_wait_for_clients_that_do_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    let mut silent = served.connect();
    let mut follower = served.connect();
    follower
        .write_all(b"GET /v1/lock/events HTTP/1.1\r\nhost: lock\r\n\r\n")
        .unwrap();
    follower.read_exact(&mut [0; 12]).unwrap();
    served.stop();
    let mut rest = String::new();
    follower.read_to_string(&mut rest).unwrap();
    assert!(
        rest.ends_with("0\r\n\r\n"),
        "the stream ends as HTTP wants it: {rest}"
    );
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}
