//! Releases of ZooKeeper that can lose committed writes.

use lockkeeper_testbed::java::Release;
use lockkeeper_testbed::{Config, Ensemble};

use crate::harness::{Run, client};

/// One server of this release.
fn server(release: Release) -> Ensemble {
    Ensemble::start(Config {
        servers: 1,
        release,
        ..Config::default()
    })
    .expect("the server starts")
}

/// What a command that runs under a lock of such a server says on standard error.
fn said_on(ensemble: &Ensemble) -> String {
    let mut run = Run::start(ensemble, "run", "/releases/report", &[], &["echo", "ran"]);
    assert_eq!(
        (run.code(), run.stdout().as_str()),
        (0, "ran\n"),
        "{}",
        run.stderr()
    );
    run.stderr()
}

#[test]
fn a_server_that_can_lose_committed_writes_is_named_with_its_issue_and_a_better_release() {
    let said = said_on(&server(Release::V3_8));
    for part in ["3.8.4", "ZOOKEEPER-4785", "upgrade to 3.8.5 or 3.9.4"] {
        assert_eq!(said.matches(part).count(), 1, "{part}: {said}");
    }
    let said = said_on(&server(Release::V3_9));
    assert!(!said.contains("ZOOKEEPER-"), "{said}");
}

#[test]
fn on_zookeeper_3_5_a_command_runs_under_a_lock_and_who_watches_one_is_told_that_it_takes_3_6() {
    let ensemble = server(Release::V3_5);
    said_on(&ensemble);
    let connect = ensemble.connect_string();
    let watch = ["watch", "--lock", "/releases/report", "--connect", &connect];
    let (code, said) = ensemble.observer().run(|| client(&watch)).unwrap();
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("ZooKeeper 3.6 or newer is needed"), "{said}");
}
