//! A round of each kind of servers and of drivers, so that the comparison can be repeated: `make rivals` plays hundreds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_rivals::faults::Fault;
use lockkeeper_rivals::round;
use lockkeeper_rivals::systems::{Driver, System};

/// Long enough for holders on a busy machine.
const LEASE: Duration = Duration::from_secs(10);

/// At once: they wait most of the time.
const AT_ONCE: usize = 4;

/// One for each kind of servers, with each driver among them.
const ONE_OF_EACH: &[&str] = &[
    "lockkeeper",
    "curator-mutex",
    "kazoo",
    "jdbc-row-expiry@postgres",
    "jdbc-row-expiry@mariadb",
    "redis-lock",
    "redis-lock@sentinel",
    "redlock",
    "memcached",
    "etcd-mutex",
    "hazelcast-fenced",
    "k8s-lease-defaults",
];

fn has_go() -> bool {
    let version = std::process::Command::new("go").arg("version").output();
    version.is_ok_and(|output| output.status.success())
}

#[test]
fn a_lock_of_each_kind_gets_to_the_next_one_when_its_holder_is_killed_and_never_runs_twice() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("needs root for network namespaces and for servers of other users");
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(name) = ONE_OF_EACH.get(next.fetch_add(1, Ordering::Relaxed)) {
            let system = System::named(name).unwrap_or_else(|| panic!("{name} is in the table"));
            let needs_go = matches!(system.driver, Driver::Go);
            if needs_go && !has_go() {
                lockkeeper_skip::skip("needs Go");
                continue;
            }
            let mut servers = system
                .servers
                .start()
                .unwrap_or_else(|error| panic!("{name}: {error:#}"));
            let lease = system.lease(LEASE);
            let round = round::play(system, Fault::HolderKilled, &mut *servers, lease, 1)
                .unwrap_or_else(|error| panic!("{name}: {error:#}"));
            println!("{name}: {round:?}");
            assert_eq!(round.overlap, None, "{name}");
            assert!(round.gap.is_some(), "{name}: nobody ever ran again");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
}

#[test]
fn what_the_page_says_is_what_the_results_say() {
    let documents = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| std::fs::read_to_string(documents.join(name)).unwrap();
    let results = lockkeeper_rivals::results::Kept::read(&documents.join("rivals/results.json")).unwrap();
    let again = "write them anew: make comparison";
    assert!(
        read("comparison.md") == lockkeeper_rivals::page::render(&results),
        "{again}"
    );
    assert!(
        read("rivals/heat-map.svg") == lockkeeper_rivals::picture::heat_map(&results),
        "{again}"
    );
    assert!(
        read("rivals/scatter.svg") == lockkeeper_rivals::picture::scatter(&results),
        "{again}"
    );
}
