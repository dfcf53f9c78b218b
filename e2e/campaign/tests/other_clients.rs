//! Other clients as the trials and the benchmarks run them, on a real server.

use std::process::Stdio;
use std::time::Duration;

use lockkeeper_campaign::other_clients::{Bench, Client, Contender, Downgrade};
use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Records;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::worker::{Options, Worker};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(30);

#[test]
fn the_leader_is_seen_to_make_and_delete_each_contender_of_curator() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    })
    .expect("the server starts");
    let deletions = DeletionWatch::begin(&ensemble, "/lock").unwrap();
    let record = ensemble.directory().join("record");
    let mut contenders: Vec<_> = ["anna", "bert"]
        .into_iter()
        .map(|name| {
            let contender = Contender {
                client: Client::Curator,
                connect: ensemble.connect_string(),
                path: "/lock".to_owned(),
                times: 3,
                hold: Duration::from_millis(50),
                session_timeout: Duration::from_secs(10),
                name: name.to_owned(),
                record: record.clone(),
            };
            ensemble
                .client(name)
                .unwrap()
                .spawn(name, contender.command().unwrap())
                .unwrap()
        })
        .collect();
    for contender in &mut contenders {
        let status = contender.wait(BOUND).unwrap().expect("it ends");
        assert!(status.success(), "{}: {status}", contender.name());
    }
    let report = check(&Records::read(&record).unwrap().records, Rule::Exclusive);
    println!("{report}");
    assert!(report.is_clean());
    assert_eq!(report.holds.len(), 6);
    for hold in &report.holds {
        let deleted = deletions
            .wait_for_deletion(hold.token, BOUND)
            .expect("its node was seen");
        assert!(deleted > hold.end);
    }
    assert_eq!(deletions.interrupted(), None);
    assert_eq!(report.spares(&deletions.lives()).len(), 6);
}

#[test]
fn the_bench_of_curator_measures_as_many_rounds_as_it_is_told() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    })
    .expect("the server starts");
    let bench = Bench {
        connect: ensemble.connect_string(),
        path: "/bench".to_owned(),
        contenders: 3,
        rounds: 2,
        handoffs: 20,
        hold: Duration::from_millis(5),
    };
    let mut command = bench.command().unwrap();
    command.stdout(Stdio::piped());
    let mut process = ensemble.client("bench").unwrap().spawn("bench", command).unwrap();
    let status = process.wait(BOUND).unwrap().expect("it ends");
    assert!(status.success(), "{status}");
    let printed = std::io::read_to_string(process.child_mut().stdout.take().unwrap()).unwrap();
    println!("{printed}");
    let start = r#"{"contenders":3,"holdMillis":5,"handoffs":20,"rounds":[{"p50Micros":"#;
    assert!(printed.starts_with(start), "{printed}");
    assert_eq!(printed.matches("p99Micros").count(), 2);
}

/// "Lock downgrading": the reader that a thread of Curator makes while it has the write lock is before all that wait.
#[test]
fn a_writer_behind_a_writer_of_curator_waits_for_the_reader_that_this_becomes_and_so_does_a_later_one() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    })
    .expect("the server starts");
    let lock = "/downgrade";
    let host = ensemble.client("curator").unwrap();
    let mut curator = Downgrade::start(&host, &ensemble.connect_string(), lock).unwrap();
    let start = |name: &str| {
        let options = Options {
            session_timeout: Duration::from_secs(15),
            ..Options::new(&ensemble, name, lock).unwrap()
        };
        Worker::start(&ensemble, options.with_run(&["--access", "write"])).unwrap()
    };
    let queued = |worker: &Worker| {
        let is_queued = || worker.log().contains("lock.to=\"Waiting\"").then_some(());
        wait_for(BOUND, is_queued).unwrap_or_else(|| panic!("{}", worker.log()));
    };
    let waits = start("waits");
    queued(&waits);
    curator.read_as_well().unwrap();
    let late = start("late");
    queued(&late);
    curator.only_read().unwrap();
    // It takes some milliseconds to hold.
    std::thread::sleep(Duration::from_secs(1));
    for worker in [&waits, &late] {
        assert!(worker.records().unwrap().is_empty(), "{}", worker.log());
    }
    curator.release().unwrap();
    waits.wait_until_it_runs(0, BOUND).unwrap();
    assert!(late.records().unwrap().is_empty(), "{}", late.log());
}
