//! `lockkeeper status`, `wait` and `release` at the socket of a running worker.

use lockkeeper_lock::Control;
use lockkeeper_testbed::process::wait_for;
use serde_json::Value;

use crate::harness::{BOUND, client, ensemble, wait_for_contenders, with_client, worker};

#[test]
fn a_release_hands_the_lock_to_the_next_worker_and_says_that_it_was_clean() {
    let ensemble = ensemble();
    let lock = "/socket/release";
    let path = ensemble.directory().join("release.sock");
    let socket = path.to_str().unwrap();
    let first = worker(
        &ensemble,
        "release-first",
        lock,
        &["--socket", socket],
        &["--fork", "1"],
    );
    let token = first.wait_until_it_runs(0, BOUND).unwrap();
    let second = worker(&ensemble, "release-second", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);

    assert_eq!(client(&["wait", "--socket", socket, "--timeout", "30s"]).0, 0);
    let (code, said) = client(&["status", "--socket", socket, "--output", "json"]);
    assert_eq!(code, 0, "{said}");
    let status: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(status["lock"], lock);
    assert_eq!(status["state"], "Held");
    assert_eq!(status["position"], 0);
    assert_eq!(status["fencingToken"], token);
    assert!(
        // 1 % of 15 s and 200 ms are the margin.
        status["remainingMillis"].as_u64().unwrap() <= 15_000 - 350,
        "{said}"
    );

    let (code, said) = client(&["release", "--socket", socket]);
    assert_eq!(code, 0, "{said}");
    let next = second.wait_until_it_runs(token, BOUND).unwrap();
    let began = second.records().unwrap()[0].at;
    let last = first.last_stamp(token).unwrap();
    println!("released: the next began {:?} after the last stamp", began - last);
    assert!(last < began, "the first still ran when the second began");

    let control = with_client(&ensemble, async |client| {
        client.sync(lock).await?;
        client.get_data(&format!("{lock}-control")).await
    });
    let control = Control::parse(&control.unwrap().0);
    assert!(
        control
            .last_release
            .iter()
            .any(|release| release.token.0 == token),
        "{control:?}"
    );

    // It queues again, behind the second one.
    let queued = ["wait", "--for", "queued", "--socket", socket, "--timeout", "30s"];
    assert_eq!(client(&queued).0, 0);
    // It is in the queue before it has read its place there.
    let status = wait_for(BOUND, || {
        let (_, said) = client(&["status", "--socket", socket, "--output", "json"]);
        let status: Value = serde_json::from_str(&said).ok()?;
        (status["position"] == 1).then_some(status)
    });
    let status = status.expect("it knows its place");
    assert_eq!(status["state"], "Waiting");
    assert_eq!(status.get("fencingToken"), None);
    drop(second);
    first.wait_until_it_runs(next, BOUND).unwrap();
}

#[test]
fn a_wait_for_a_lock_that_is_not_held_in_time_ends_with_81() {
    let ensemble = ensemble();
    let lock = "/socket/wait";
    let holder = worker(&ensemble, "wait-holder", lock, &[], &[]);
    holder.wait_until_it_runs(0, BOUND).unwrap();
    let path = ensemble.directory().join("wait.sock");
    let socket = path.to_str().unwrap();
    let waiter = worker(&ensemble, "wait-waiter", lock, &["--socket", socket], &[]);
    assert_eq!(
        client(&["wait", "--for", "queued", "--socket", socket, "--timeout", "30s"]).0,
        0
    );
    let (code, said) = client(&["wait", "--socket", socket, "--timeout", "1s"]);
    assert_eq!(code, 81, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(waiter.records().unwrap().is_empty());
    drop(waiter);
    wait_for(BOUND, || (!path.exists()).then_some(())).expect("the socket's file goes with the worker");
}
