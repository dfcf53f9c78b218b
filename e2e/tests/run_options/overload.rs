//! An overloaded server answers that it does not carry out a request (`RequestThrottler`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_product::worker::{Options, Worker};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};
use tokio::task::JoinSet;

use crate::harness::{BOUND, with_client};

/// T of the holder, the longest for a tick of 1 s: it tolerates 9 s without an answer.
const SESSION: Duration = Duration::from_secs(20);

/// Requests at one moment: more than the server processes at once, so that the last ones wait for too long.
const CROWD: usize = 64;

/// A server that processes one request at a time, and rejects those that have waited for 2 ms.
fn throttling() -> Ensemble {
    let arguments = [
        "-Dzookeeper.request_throttle_max_requests=1",
        "-Dzookeeper.request_throttle_stall_time=5",
        "-Dzookeeper.throttled_op_wait_time=2",
    ];
    let config = Config {
        servers: 1,
        java_arguments: arguments.map(str::to_owned).to_vec(),
        ..Config::default()
    };
    Ensemble::start(config).expect("the server starts")
}

#[test]
fn an_overloaded_server_that_does_not_carry_out_a_renewal_does_not_end_the_hold() {
    let ensemble = throttling();
    let options = Options {
        session_timeout: SESSION,
        ..Options::new(&ensemble, "holder", "/overloaded").unwrap()
    };
    let mut holder = Worker::start(&ensemble, options).unwrap();
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let is_enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            with_client(&ensemble, async |client| {
                while !is_enough.load(Ordering::Relaxed) {
                    let mut crowd = JoinSet::new();
                    for _ in 0..CROWD {
                        let client = client.clone();
                        crowd.spawn(async move { client.check_stat("/").await });
                    }
                    crowd.join_all().await;
                }
                Ok(())
            })
        });
        let overloaded = wait_for(BOUND, || {
            let is_told = holder.log().contains("Server overloaded");
            (is_told || !holder.guard().is_running()).then_some(())
        });
        is_enough.store(true, Ordering::Relaxed);
        overloaded.unwrap_or_else(|| panic!("no renewal was throttled:\n{}", holder.log()));
    });
    // Longer than its lease.
    let end = BootInstant::now() + SESSION * 3 / 2;
    wait_for(BOUND, || {
        let last = holder.last_stamp(token).ok()?;
        (last > end || !holder.guard().is_running()).then_some(())
    })
    .unwrap_or_else(|| panic!("it does not run on:\n{}", holder.log()));
    assert!(holder.last_stamp(token).unwrap() > end, "{}", holder.log());
}
