//! The guarded program of the tests, on the testbed.

use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Records;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::binaries;
use lockkeeper_testbed::owner::is_running;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};
use rustix::process::Signal;

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(30);

#[test]
fn the_recorder_and_its_orphans_record_until_they_are_killed_and_end_with_the_harness() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    })
    .expect("the server starts");
    let file = ensemble.directory().join("record");
    let mut command = Command::new(binaries::recorder().unwrap());
    command
        .arg(&file)
        .args(["--token", "7", "--fork", "2", "--exit-code", "3"]);
    let mut recorder = ensemble
        .client("worker")
        .unwrap()
        .spawn("recorder", command)
        .unwrap();
    let read = || {
        check(
            &Records::read(&file).map(|read| read.records).unwrap_or_default(),
            Rule::Exclusive,
        )
    };
    let running =
        || Some(read()).filter(|report| report.holds.first().is_some_and(|hold| hold.pids.len() == 3));
    let begun = wait_for(BOUND, running).expect("three processes record");

    recorder.signal(Signal::TERM);
    let status = recorder.wait(BOUND).unwrap().expect("it ends");
    assert_eq!(status.code(), Some(3));
    let after = BootInstant::now();
    wait_for(BOUND, || (read().holds[0].end > after).then_some(())).expect("the orphans go on");
    let pids = begun.holds[0].pids.clone();
    assert!(pids.len() == 3 && !read().holds[0].ended);

    let servers: Vec<u32> = ensemble
        .pid(0)
        .iter()
        .map(|pid| pid.as_raw_pid() as u32)
        .collect();
    let directory = ensemble.directory().to_owned();
    drop(ensemble);
    for pid in pids.iter().chain(&servers) {
        // It is killed by now; the kernel may need a moment to end it.
        wait_for(BOUND, || (!is_running(*pid)).then_some(()))
            .unwrap_or_else(|| panic!("process {pid} is left"));
    }
    assert!(!directory.exists());
}
