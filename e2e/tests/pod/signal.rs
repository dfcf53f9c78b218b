//! A sidecar that guards a container which knows nothing of locks, by signals.

use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, faults};

use crate::judging::{all, assert_gone_before_the_deletion, is_root};

/// Two pods of which the first runs and the second waits, and the token of the first.
fn two_pods(ensemble: &Ensemble, lock: &str, more: &[&str]) -> (Pod, Pod, i64) {
    let mut first = Pod::start_with_foreign_container(ensemble, "first", lock, more);
    first.keep_foreign_container("first", 1);
    let token = first.wait_until_it_runs(0);
    let second = Pod::start_with_foreign_container(ensemble, "second", lock, more);
    assert_eq!(
        second.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );
    (first, second, token)
}

#[test]
fn a_container_that_knows_nothing_of_locks_is_killed_in_time_and_the_pod_gated_anew() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/foreign";
    let deletions = DeletionWatch::begin(&ensemble, lock).unwrap();
    let (mut first, mut second, token) = two_pods(&ensemble, lock, &[]);
    for server in 0..ensemble.len() {
        ensemble.cut(&first.host, ensemble.server(server)).unwrap();
    }
    second.keep_foreign_container("second", 1);
    second.wait_until_it_runs(token);
    assert_gone_before_the_deletion(&first, token, &deletions);
    assert_eq!(first.lease_file(), None);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");

    // The exit code of the pod's restart rule: the kubelet stops all containers, and the lease file gates
    // them again.
    let status = first
        .sidecar
        .as_mut()
        .unwrap()
        .wait(BOUND)
        .unwrap()
        .expect("the sidecar ends");
    assert_eq!(status.code(), Some(88), "{}", first.said());
}

#[test]
fn a_container_whose_guard_is_killed_is_gone_before_its_lock() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/foreign";
    let deletions = DeletionWatch::begin(&ensemble, lock).unwrap();
    let (mut first, mut second, token) = two_pods(&ensemble, lock, &[]);

    let killed = BootInstant::now();
    faults::kill(first.sidecar.as_ref().unwrap().pid()).unwrap();
    first.container_ends();
    println!(
        "the keeper had killed the container {:?} after the guard",
        BootInstant::now() - killed
    );
    assert_eq!(first.lease_file(), None);
    second.keep_foreign_container("second", 1);
    second.wait_until_it_runs(token);
    assert_gone_before_the_deletion(&first, token, &deletions);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}

#[test]
fn a_container_goes_on_when_its_keeper_is_killed() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let calm = ["--session-timeout", "15s"];
    let (first, second, token) = two_pods(&ensemble, "/locks/foreign", &calm);
    let lease = first.lease_file();
    for _ in 0..2 {
        let killed = first.keeper();
        faults::kill(killed).unwrap();
        first.goes_on_for(Duration::from_secs(20));
        assert_ne!(first.keeper(), killed);
        assert_eq!(first.lease_file(), lease, "a kubelet may start it again");
    }
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 1, "{report}");
    assert!(first.records().iter().all(|record| record.token == token));
}

#[test]
fn a_container_is_not_started_again_without_the_lock_though_its_keeper_is_frozen() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/foreign";
    let deletions = DeletionWatch::begin(&ensemble, lock).unwrap();
    // The first keeps the lock on a busy machine until its keeper stands still.
    let (mut first, mut second, token) = two_pods(&ensemble, lock, &["--session-timeout", "8s"]);

    faults::stop(first.keeper()).unwrap();
    first.container_ends();
    assert_eq!(first.lease_file(), None, "a kubelet could start it again");
    second.keep_foreign_container("second", 1);
    second.wait_until_it_runs(token);
    assert_gone_before_the_deletion(&first, token, &deletions);
    faults::resume(first.keeper()).unwrap();
    let status = first.sidecar.as_mut().unwrap().wait(BOUND).unwrap();
    assert_eq!(status.expect("it ends").code(), Some(88), "{}", first.said());
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}

#[test]
fn a_container_that_ends_by_itself_hands_the_lock_over_and_its_sidecar_queues_again() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let (mut first, mut second, token) = two_pods(&ensemble, "/locks/foreign", &[]);

    faults::kill(first.container.as_ref().unwrap().pid()).unwrap();
    let ended = BootInstant::now();
    wait_for(BOUND, || second.lease_file()).expect("the next one holds");
    println!("the next one held {:?} later", BootInstant::now() - ended);
    assert_eq!(first.lease_file(), None);
    second.keep_foreign_container("second", 1);
    let next = second.wait_until_it_runs(token);

    faults::kill(second.container.as_ref().unwrap().pid()).unwrap();
    first.keep_foreign_container("first", 2);
    first.wait_until_it_runs(next);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 3, "{report}");
}

#[test]
fn a_container_that_is_to_keep_its_lock_is_started_again_under_it() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let (mut first, second, token) = two_pods(&ensemble, "/locks/foreign", &["--on-exit", "hold"]);

    for begins in 1..4 {
        first.keep_foreign_container("first", begins);
        faults::kill(first.container.as_ref().unwrap().pid()).unwrap();
        first.container_ends();
    }
    let records = first.records();
    assert!(records.iter().all(|record| record.token == token), "{records:?}");
    assert_eq!(second.lease_file(), None);
}
