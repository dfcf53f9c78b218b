//! What a few locks offer, asked on real servers as `make rivals ARGS="--properties"` asks all of them.

use std::time::Duration;

use lockkeeper_rivals::probe::{Answer, Found, Probe};
use lockkeeper_rivals::properties::{ask, ask_queue};
use lockkeeper_rivals::site::Site;
use lockkeeper_rivals::systems::System;

/// Long enough for a free lock on a busy machine; what waits is waited for as long.
const BOUND: Duration = Duration::from_secs(5);

fn asked(name: &str, site: &mut Site, probe: Probe) -> Found {
    let system = System::named(name).unwrap_or_else(|| panic!("{name} is in the table"));
    let found = ask(system, site, probe, BOUND).unwrap_or_else(|error| panic!("{name} {probe:?}: {error:#}"));
    println!("{name} {probe:?}: {found:?}");
    found
}

/// The site of a system.
fn site_of(name: &str) -> Site {
    let system = System::named(name).unwrap_or_else(|| panic!("{name} is in the table"));
    Site::start(system.servers).unwrap_or_else(|error| panic!("{name}: {error:#}"))
}

#[test]
fn what_a_lock_offers_is_what_its_driver_or_its_command_line_does_on_real_servers() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("needs root for network namespaces and for servers of other users");
    }
    let on_zookeeper = || {
        let mut site = site_of("kazoo");
        // A command, which looks at the environment of the command that it is in.
        let within = asked("lockkeeper", &mut site, Probe::Reentrant);
        assert_eq!(within.answer, Answer::Yes);
        assert_eq!(within.seen, "each acquisition wants its release");
        assert_eq!(asked("lockkeeper", &mut site, Probe::Try).answer, Answer::Yes);
        // Its page: "This lock is not re-entrant".
        let within = asked("kazoo", &mut site, Probe::Reentrant);
        assert_eq!(
            (within.answer, within.seen.as_str()),
            (Answer::No, "waits for itself")
        );
        assert_eq!(asked("kazoo", &mut site, Probe::Timed).answer, Answer::Yes);
        // By the session that has its node.
        assert_eq!(
            asked("zk-naive", &mut site, Probe::Reentrant).seen,
            "one release gives it away"
        );
    };
    let on_postgres = || {
        let mut site = site_of("pg-advisory");
        assert_eq!(asked("pg-advisory", &mut site, Probe::Shared).answer, Answer::Yes);
        assert_eq!(
            asked("jdbc-row@postgres", &mut site, Probe::Try).answer,
            Answer::Yes
        );
        assert_eq!(
            asked("jdbc-row@postgres", &mut site, Probe::Timed).answer,
            Answer::NotOffered
        );
    };
    std::thread::scope(|scope| {
        scope.spawn(on_zookeeper);
        scope.spawn(on_postgres);
    });
}

#[test]
fn a_client_that_looks_for_our_nodes_stands_in_one_queue_with_ours_and_one_that_does_not_runs_beside_it() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("needs root for network namespaces");
    }
    let mut site = site_of("lockkeeper");
    let mut with = |other| {
        ask_queue("lockkeeper", other, &mut site)
            .unwrap()
            .expect("a pair")
    };
    let together = with("kazoo");
    assert_eq!(together.answer, Answer::Yes, "{together:?}");
    let beside = with("kazoo without `extra_lock_patterns`");
    assert_eq!(
        (beside.answer, beside.seen.as_str()),
        (
            Answer::No,
            "kazoo without `extra_lock_patterns` runs beside lockkeeper"
        )
    );
}
