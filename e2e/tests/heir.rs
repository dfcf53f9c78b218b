//! The first waiter prepares for its turn without repeated reconnections.

use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_product::worker::{Options, Worker};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};
use rustix::process::Signal;

const BOUND: Duration = Duration::from_secs(60);

/// On a busy machine an answer may take seconds; with a tick of 1 s this timeout tolerates 4.3 s.
const SESSION: Duration = Duration::from_secs(10);

#[test]
fn a_waiter_that_becomes_the_heir_after_a_long_wait_connects_once_more_and_not_again() {
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let start = |name: &str, recorder: &[&str]| {
        let options = Options {
            session_timeout: SESSION,
            ..Options::new(&ensemble, name, "/locks/heir").unwrap()
        };
        let worker = Worker::start(&ensemble, options.with_recorder(recorder)).unwrap();
        let waits = || worker.log().contains("lock.to=\"Waiting\"").then_some(());
        wait_for(BOUND, waits).expect("it queues");
        worker
    };
    let mut holder = start("holder", &[]);
    let short = ["--hold", "300ms"];
    let heir = start("heir", &short);
    let waiters = ["w1", "w2", "w3", "w4", "w5", "w6"].map(|name| start(name, &short));
    // Longer than the session timeout after the last one has queued: then a waiter's lease is over.
    let end = BootInstant::now() + SESSION + Duration::from_secs(2);
    let mut token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let has_held = || (holder.last_stamp(token).ok()? > end).then_some(());
    wait_for(BOUND, has_held).unwrap_or_else(|| panic!("{}", holder.log()));
    holder.guard().signal(Signal::TERM);

    token = heir.wait_until_it_runs(token, BOUND).unwrap();
    for waiter in &waiters {
        token = waiter.wait_until_it_runs(token, BOUND).unwrap();
        let log = waiter.log();
        // One more connection for each time that a server was too busy to answer.
        let busy = log.matches("Writes stay unanswered").count();
        let served = log.matches("Session served").count();
        assert!((2..=2 + busy).contains(&served), "{log}");
    }
}
