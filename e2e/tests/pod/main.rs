//! The processes of a pod, without a cluster: `lockkeeper sidecar` beside `lockkeeper guard` as PID 1
//! of a PID namespace, which share a directory as the containers of a pod share a volume.

mod ending;
mod guards;
mod hooks;
mod judging;
mod names;
mod provisioned;
mod rotated;
mod signal;
mod unproven;
mod users;

use std::time::Duration;

use judging::{all, assert_gone_before_the_deletion, is_root};
use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::pod::Pod;
use lockkeeper_testbed::{Config, Ensemble, faults};

/// Waits until a pod is in the queue.
const QUEUED: [&str; 5] = ["wait", "--for", "queued", "--timeout", "30s"];

#[test]
fn of_two_pods_one_runs_and_a_release_hands_over_without_a_restart_of_a_container() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let first = Pod::start(&ensemble, "first", "/locks/pod");
    let token = first.wait_until_it_runs(0);
    assert_eq!(
        first.lease_file(),
        Some(format!("LOCKKEEPER_FENCING_TOKEN='{token}'\n"))
    );
    let second = Pod::start(&ensemble, "second", "/locks/pod");
    assert_eq!(
        second.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );
    assert_eq!(second.lease_file(), None);

    assert_eq!(first.lockkeeper(&["release"]), Some(0));
    let next = second.wait_until_it_runs(token);
    assert_eq!(first.lease_file(), None);
    assert_eq!(second.lockkeeper(&["release"]), Some(0));
    // The same guard starts the application once more.
    first.wait_until_it_runs(next);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 3, "{report}");
}

#[test]
fn a_killed_sidecar_that_comes_back_too_late_costs_its_application_the_lock_in_time_and_queues_again() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/pod";
    let deletions = DeletionWatch::begin(&ensemble, lock).unwrap();
    let mut first = Pod::start(&ensemble, "first", lock);
    let token = first.wait_until_it_runs(0);
    let second = Pod::start(&ensemble, "second", lock);
    assert_eq!(second.lockkeeper(&QUEUED), Some(0));

    faults::kill(first.sidecar.take().unwrap().pid()).unwrap();
    let next = second.wait_until_it_runs(token);
    assert_gone_before_the_deletion(&first, token, &deletions);
    first.start_sidecar(&ensemble, lock, &[]);
    assert_eq!(first.lockkeeper(&QUEUED), Some(0));
    assert_eq!(second.lockkeeper(&["release"]), Some(0));
    first.wait_until_it_runs(next);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 3, "{report}");
}

/// T of a pod whose sidecar is started again: with a tick of 1 s the application runs on for some 10 s.
const CALM: [&str; 2] = ["--session-timeout", "15s"];

/// Longer than a session of that.
const LONGER: Duration = Duration::from_secs(20);

#[test]
fn an_application_goes_on_under_the_same_lock_when_its_sidecar_is_started_again() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/pod";
    let mut first = Pod::start_with(&ensemble, "first", lock, &CALM, &[]);
    let token = first.wait_until_it_runs(0);
    let second = Pod::start_with(&ensemble, "second", lock, &CALM, &[]);
    assert_eq!(second.lockkeeper(&QUEUED), Some(0));
    for is_killed in [true, false, true] {
        if is_killed {
            faults::kill(first.sidecar.take().unwrap().pid()).unwrap();
        } else {
            // As a kubelet does to replace the container.
            assert_eq!(first.end_sidecar(), Some(0), "{}", first.said());
        }
        first.start_sidecar(&ensemble, lock, &CALM);
        assert_eq!(
            first.lockkeeper(&["wait", "--for", "held", "--timeout", "30s"]),
            Some(0)
        );
        first.goes_on_for(LONGER);
    }
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 1, "{report}");
    assert!(first.records().iter().all(|record| record.token == token));
    assert!(second.records().is_empty());
    // It hands the lock over like any other holder.
    assert_eq!(first.lockkeeper(&["release"]), Some(0));
    second.wait_until_it_runs(token);
}
