//! The end of a pod, as a kubelet does it: hooks, SIGTERM to the container, and to the sidecar last.

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::pod::Pod;
use lockkeeper_testbed::{Config, Ensemble};
use rustix::process::{Signal, kill_process};

use crate::judging::{all, assert_gone_before_the_deletion, is_root};

#[test]
fn the_end_of_a_pod_hands_the_lock_over_as_soon_as_the_application_has_ended() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/pod";
    let mut first = Pod::start_with(&ensemble, "first", lock, &[], &["--exit-code", "7"]);
    let token = first.wait_until_it_runs(0);
    let mut second = Pod::start(&ensemble, "second", lock);
    assert_eq!(
        second.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );

    assert_eq!(first.lockkeeper(&["terminating"]), Some(0));
    let began = BootInstant::now();
    kill_process(first.guard(), Signal::TERM).unwrap();
    let next = second.wait_until_it_runs(token);
    let took = BootInstant::now() - began;
    assert_eq!(first.container_ends(), Some(7), "the application's own code");
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    let [one, other] = &report.holds[..] else {
        panic!("{report}")
    };
    println!(
        "handed over in {took:?}; between the last line of one and the first of the other: {:?}",
        other.begin - one.end
    );
    assert!(report.is_clean() && other.token == next, "{report}");
    // The next pod gets the lock long before the first session would have expired, though the first sidecar
    // lives.
    assert_eq!(first.end_sidecar(), Some(0), "{}", first.said());

    // A standby that ends leaves the queue, so no contender waits for it.
    let mut third = Pod::start(&ensemble, "third", lock);
    assert_eq!(
        third.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );
    assert_eq!(third.lockkeeper(&["terminating"]), Some(0));
    assert_eq!(
        third.lockkeeper(&["wait", "--for", "released", "--timeout", "30s"]),
        Some(0)
    );
    kill_process(third.guard(), Signal::TERM).unwrap();
    assert_eq!(third.container_ends(), Some(143));
    assert_eq!(third.end_sidecar(), Some(0), "{}", third.said());
    assert_eq!(second.end_sidecar(), Some(0), "{}", second.said());
}

#[test]
fn an_application_that_does_not_end_with_its_pod_is_gone_and_the_lock_released_within_the_grace() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/pod";
    let grace = ["--termination-grace", "4"];
    let mut first = Pod::start_with(&ensemble, "first", lock, &grace, &["--ignore-sigterm"]);
    let token = first.wait_until_it_runs(0);
    let second = Pod::start(&ensemble, "second", lock);
    assert_eq!(
        second.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );

    let began = BootInstant::now();
    assert_eq!(first.lockkeeper(&["terminating"]), Some(0));
    kill_process(first.guard(), Signal::TERM).unwrap();
    second.wait_until_it_runs(token);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
    println!(
        "grace 4 s: the application was gone after {:?}, the next one began after {:?}",
        report.holds[0].end - began,
        report.holds[1].begin - began
    );
    // The guard ends by itself, before a kubelet would have to kill it.
    assert_eq!(first.container_ends(), Some(143), "{}", first.said());
    assert_eq!(first.end_sidecar(), Some(0));
}

#[test]
fn a_sidecar_that_is_ended_with_its_application_still_there_does_not_release_before_that_is_gone() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/pod";
    let deletions = DeletionWatch::begin(&ensemble, lock).unwrap();
    let mut first = Pod::start_with(&ensemble, "first", lock, &[], &["--ignore-sigterm"]);
    let token = first.wait_until_it_runs(0);
    let mut second = Pod::start(&ensemble, "second", lock);
    assert_eq!(
        second.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );
    // The last moment of a grace period: SIGKILL to the one, SIGTERM to the other.
    kill_process(first.guard(), Signal::KILL).unwrap();
    assert_eq!(first.end_sidecar(), Some(0), "{}", first.said());
    second.wait_until_it_runs(token);
    assert_gone_before_the_deletion(&first, token, &deletions);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean(), "{report}");

    // With a guard that lives, the keeper waits for it.
    let mut third = Pod::start(&ensemble, "third", lock);
    assert_eq!(
        third.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );
    assert_eq!(second.end_sidecar(), Some(0), "{}", second.said());
    third.wait_until_it_runs(token);
    let report = check(&all(&[&first, &second, &third]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 3, "{report}");
    assert_eq!(third.end_sidecar(), Some(0));
}
