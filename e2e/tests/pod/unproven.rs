//! Kernels that do not tell the keeper which process its guard is: the end of a guard proves nothing there.

use std::process::Command;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Moment;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::binaries;
use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, faults};
use rustix::process::{Signal, kill_process};

use crate::judging::{all, assert_gone_before_the_deletion, is_root};

#[test]
fn a_lock_is_left_to_expire_and_nothing_is_started_under_it_where_the_end_of_a_guard_proves_nothing() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    for on_exit in ["release", "hold"] {
        let lock = format!("/locks/{on_exit}");
        let named = |name: &str| format!("{on_exit}-{name}");
        let more = ["--on-exit", on_exit];
        let mut first = Pod::empty(&ensemble, &named("first"));
        let mut sidecar = Command::new(binaries::lockkeeper().unwrap());
        faults::hide_peer_pidfd(&mut sidecar);
        first.start_sidecar_by(sidecar, &ensemble.connect_string(), &lock, &more);
        first.start_container("first", &[]);
        let token = first.wait_until_it_runs(0);
        let deletions = DeletionWatch::begin(&ensemble, &lock).unwrap();
        let second = Pod::start_with(&ensemble, &named("second"), &lock, &more, &[]);
        let queued = ["wait", "--for", "queued", "--timeout", "30s"];
        assert_eq!(second.lockkeeper(&queued), Some(0));
        let sentence = "The kernel does not tell which process connects";
        first.says(sentence);

        kill_process(first.guard(), Signal::KILL).unwrap();
        first.container_ends();
        first.start_container("first", &[]);
        second.wait_until_it_runs(token);
        assert_gone_before_the_deletion(&first, token, &deletions);
        let counted = || {
            let (_, metrics) = first.probe("/metrics")?;
            let has = |line: &str| metrics.lines().any(|one| one == line);
            let is_abandoned = has("lockkeeper_releases_total{outcome=\"abandoned\"} 1");
            (is_abandoned && has("lockkeeper_releases_total{outcome=\"confirmed\"} 0")).then_some(())
        };
        wait_for(BOUND, counted).unwrap_or_else(|| panic!("{}", first.said()));
        let report = check(&all(&[&first, &second]), Rule::Exclusive);
        assert!(report.is_clean() && report.holds.len() == 2, "{report}");
        let begins = first
            .records()
            .into_iter()
            .filter(|record| matches!(record.moment, Moment::Begin { .. }));
        assert_eq!(begins.count(), 1, "{}", first.said());
    }
}
