//! The first waiter gets ready for its turn without losing its connection again and again.

use std::time::Duration;

use lockkeeper_e2e::process::wait_for;
use lockkeeper_e2e::worker::{Options, Worker};
use lockkeeper_e2e::{Config, Ensemble};

const BOUND: Duration = Duration::from_secs(60);

#[test]
fn a_waiter_that_becomes_the_heir_after_a_long_wait_connects_once_more_and_not_again() {
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let start = |name: &str, hold: &str| {
        let options = Options::new(&ensemble, name, "/locks/heir").unwrap();
        let options = options.with_recorder(&["--hold", hold]);
        let worker = Worker::start(&ensemble, options).unwrap();
        let waits = || worker.log().contains("lock.to=\"Waiting\"").then_some(());
        wait_for(BOUND, waits).expect("it queues");
        worker
    };
    // Longer than the session timeout, from when the last one queues: then a waiter's lease is over.
    let holder = start("holder", "8s");
    let heir = start("heir", "300ms");
    let waiters = ["w1", "w2", "w3", "w4", "w5", "w6"].map(|name| start(name, "300ms"));

    let mut token = holder.wait_until_it_runs(0, BOUND).unwrap();
    token = heir.wait_until_it_runs(token, BOUND).unwrap();
    for waiter in &waiters {
        token = waiter.wait_until_it_runs(token, BOUND).unwrap();
        let log = waiter.log();
        assert_eq!(log.matches("Session served").count(), 2, "{log}");
    }
}
