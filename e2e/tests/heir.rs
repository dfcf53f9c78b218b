//! The first waiter gets ready for its turn without losing its connection again and again.

use std::time::Duration;

use lockkeeper_e2e::process::wait_for;
use lockkeeper_e2e::worker::{Options, Worker};
use lockkeeper_e2e::{Config, Ensemble};
use lockkeeper_lock::BootInstant;
use rustix::process::Signal;

const BOUND: Duration = Duration::from_secs(60);

/// On a machine with other work to do an answer may take seconds; with a tick of 1 s nobody minds for 4.3 s.
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
    // Longer than the session timeout, from when the last one queues: then a waiter's lease is over.
    let end = BootInstant::now() + SESSION + Duration::from_secs(2);
    let mut token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let has_held = || (holder.last_stamp(token).ok()? > end).then_some(());
    wait_for(BOUND, has_held).unwrap_or_else(|| panic!("{}", holder.log()));
    holder.guard().signal(Signal::TERM);

    token = heir.wait_until_it_runs(token, BOUND).unwrap();
    for waiter in &waiters {
        token = waiter.wait_until_it_runs(token, BOUND).unwrap();
        let log = waiter.log();
        // One more for each server that was too busy to answer.
        let busy = log.matches("Writes stay unanswered").count();
        let served = log.matches("Session served").count();
        assert!((2..=2 + busy).contains(&served), "{log}");
    }
}
