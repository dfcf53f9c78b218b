//! How the trials know in which way a holder's node was deleted.

use std::time::Duration;

use lockkeeper_product::worker::Options;
use lockkeeper_product::{DeletionWatch, Worker};
use lockkeeper_testbed::{Config, Ensemble, faults};
use rustix::process::{Signal, kill_process};

const BOUND: Duration = Duration::from_secs(60);

#[test]
fn a_release_is_told_apart_from_a_node_whose_place_was_taken() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    })
    .expect("the server starts");
    // The lock's control node is below this, too.
    let deletions = DeletionWatch::begin(&ensemble, "/locks").unwrap();
    let start = |name: &str| {
        let options = Options {
            session_timeout: Duration::from_secs(15),
            ..Options::new(&ensemble, name, "/locks/report").unwrap()
        };
        Worker::start(&ensemble, options).unwrap()
    };
    let first = start("first");
    let released = first.wait_until_it_runs(0, BOUND).unwrap();
    let second = start("second");
    kill_process(first.guard_pid(), Signal::TERM).unwrap();
    let taken = second.wait_until_it_runs(released, BOUND).unwrap();
    deletions
        .wait_for_deletion(released, BOUND)
        .expect("the first leaves");

    let third = start("third");
    let keeper = second.keeper_pid().expect("it has a keeper");
    // A guard that runs would start another keeper, and a keeper that lives would release the lock.
    faults::stop(second.guard_pid()).unwrap();
    faults::kill(keeper).unwrap();
    faults::kill(second.guard_pid()).unwrap();
    third.wait_until_it_runs(taken, BOUND).unwrap();
    deletions
        .wait_for_deletion(taken, BOUND)
        .expect("the second is replaced");
    assert!(deletions.was_released(released));
    assert!(!deletions.was_released(taken));
    assert!(!deletions.was_released(0), "no node has this token");
}
