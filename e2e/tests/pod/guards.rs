//! One guard: other processes that connect to its keeper's socket, and the proof that its end gives.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Moment;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::binaries;
use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, faults};
use rustix::process::{Signal, kill_process};

use crate::CALM;
use crate::judging::{all, assert_gone_before_the_deletion, is_root};

/// Longer than a session timeout of 15 s, and a lease: a contender that could get the lock would have it by then.
const LONG: Duration = Duration::from_secs(25);
const LONGER_THAN_A_SESSION: Duration = Duration::from_secs(20);

/// Two pods, of which the first runs and the second waits, and the token of the first.
fn two_pods(ensemble: &Ensemble, more: &[&str]) -> (Pod, Pod, i64) {
    let lock = "/locks/pod";
    let calm = [&CALM[..], more].concat();
    let more = if more.contains(&CALM[0]) { more } else { &calm };
    let first = Pod::start_with(ensemble, "first", lock, more, &[]);
    let token = first.wait_until_it_runs(0);
    let second = Pod::start_with(ensemble, "second", lock, more, &[]);
    let queued = ["wait", "--for", "queued", "--timeout", "30s"];
    assert_eq!(second.lockkeeper(&queued), Some(0));
    (first, second, token)
}

/// Asserts that only the first runs, and that it has begun once and still runs.
pub fn assert_only_the_first_runs(first: &Pod, second: &Pod, token: i64) {
    let now = BootInstant::now();
    let goes_on = || (first.records().last()?.at > now).then_some(());
    wait_for(BOUND, goes_on).unwrap_or_else(|| panic!("{}", first.said()));
    let report = check(&all(&[first, second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 1, "{report}");
    assert!(second.records().is_empty(), "{}", second.said());
    let records = first.records();
    assert!(records.iter().all(|record| record.token == token));
    let begins = records
        .iter()
        .filter(|record| matches!(record.moment, Moment::Begin { .. }));
    assert_eq!(begins.count(), 1, "{}", first.said());
}

#[test]
fn a_second_guard_is_refused_with_a_sentence_and_the_first_goes_on() {
    a_second_guard_is_refused(&[]);
}

#[test]
fn a_second_guard_is_refused_and_starts_nothing_where_the_lock_is_kept_through_an_exit() {
    a_second_guard_is_refused(&["--on-exit", "hold"]);
}

fn a_second_guard_is_refused(more: &[&str]) {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let (first, second, token) = two_pods(&ensemble, more);
    // Another process of the container, as by `kubectl exec`.
    let code = first.executed("guard", &["--", "true"]);
    let mut third = first.another_container("third", &[]);
    let third = third.wait(BOUND).unwrap();
    // If the first guard were displaced, the second pod would have got the lock long before.
    std::thread::sleep(LONG);
    assert_only_the_first_runs(&first, &second, token);
    assert_eq!(code, Some(64), "{}", first.said());
    let third = third.expect("a guard that is refused ends");
    assert_eq!(third.code(), Some(77), "{}", first.said());
    let sentence = "the keeper has another guard already, whose process has not ended";
    first.says(sentence);
}

#[test]
fn a_guard_whose_container_has_a_clock_of_its_own_is_refused_and_starts_nothing() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let mut pod = Pod::empty(&ensemble, "clock");
    pod.start_sidecar(&ensemble, "/locks/clock", &[]);
    let mut guard = Command::new("unshare");
    guard
        .args(["--time", "--boottime", "-100", "--fork", "--kill-child"])
        .args(["--pid", "--mount-proc"])
        .arg(binaries::lockkeeper().unwrap())
        .args(["guard", "--guard-socket"])
        .arg(pod.guard_socket())
        .args(["--", "touch"])
        .arg(pod.volume.join("started"))
        .stderr(pod.log());
    let mut guard = pod.host.spawn("guard", guard).unwrap();
    let code = guard.wait(BOUND).unwrap().expect("it ends").code();
    assert_eq!(code, Some(77), "{}", pod.said());
    let sentence = "the keeper is in another time namespace";
    pod.says(sentence);
    assert!(!pod.volume.join("started").exists());
}

#[test]
fn strangers_at_the_guards_socket_change_nothing() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let (first, second, token) = two_pods(&ensemble, &[]);
    let connect = || UnixStream::connect(first.guard_socket());
    let began = BootInstant::now();
    let silent: Vec<_> = (0..4).map(|_| connect().unwrap()).collect();
    connect().unwrap().write_all(&[b'x'; 64]).unwrap();
    let mut answered = 0;
    while BootInstant::now() - began < LONG {
        let mut few: Vec<_> = (0..20).filter_map(|_| connect().ok()).collect();
        answered += few.len();
        for stranger in &mut few {
            // The keeper may have closed it by now, for a later connection.
            let _ = stranger.write_all(b"GET / HTTP/1.1");
        }
    }
    println!("{answered} connections in {LONG:?}");
    drop(silent);
    assert_only_the_first_runs(&first, &second, token);
    assert_eq!(first.lockkeeper(&["release"]), Some(0), "its own guard is heard");
    second.wait_until_it_runs(token);
}

#[test]
fn a_second_sidecar_does_not_take_the_sockets_of_the_first() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let (mut first, second, token) = two_pods(&ensemble, &[]);
    let running = first.sidecar.take();
    first.start_sidecar(&ensemble, "/locks/pod", &[]);
    let code = first
        .sidecar
        .as_mut()
        .unwrap()
        .wait(BOUND)
        .unwrap()
        .unwrap()
        .code();
    first.sidecar = running;
    assert_eq!(code, Some(64), "{}", first.said());
    first.says("choose another --guard-socket");
    std::thread::sleep(LONGER_THAN_A_SESSION);
    assert_only_the_first_runs(&first, &second, token);
}

#[test]
fn the_end_of_a_container_releases_its_lock_though_the_container_does_not_come_back() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let deletions = DeletionWatch::begin(&ensemble, "/locks/pod").unwrap();
    let (first, second, token) = two_pods(&ensemble, &["--session-timeout", "20s"]);
    let killed = BootInstant::now();
    kill_process(first.guard(), Signal::KILL).unwrap();
    second.wait_until_it_runs(token);
    println!(
        "the next one ran {:?} after the kill",
        BootInstant::now() - killed
    );
    assert_gone_before_the_deletion(&first, token, &deletions);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
    let next = &report.holds[1];
    assert!(next.begin - killed < Duration::from_secs(10), "a session is 20 s");
}

#[test]
fn a_guard_that_is_frozen_with_its_connection_down_keeps_the_lock_from_others() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let (mut first, second, token) = two_pods(&ensemble, &[]);
    // The guard is stopped from outside, so it does not act at its deadline. Its application is stopped too,
    // and would go on with it.
    let guard = first.guard();
    faults::stop(guard).unwrap();
    let mut newcomer = first.another_container("third", &[]);
    let refused = newcomer.wait(BOUND).unwrap().expect("it ends");
    assert_eq!(refused.code(), Some(77), "{}", first.said());
    std::thread::sleep(LONGER_THAN_A_SESSION);
    assert!(second.records().is_empty(), "{}", second.said());
    // Its end is the proof.
    kill_process(guard, Signal::KILL).unwrap();
    first.container_ends();
    second.wait_until_it_runs(token);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}
