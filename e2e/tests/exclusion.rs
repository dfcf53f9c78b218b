//! Two guarded programs never run at the same moment: on a real ensemble, under one fault each.

use std::time::Duration;

use lockkeeper_e2e::checker::{Rule, check};
use lockkeeper_e2e::worker::{self, Options, Worker};
use lockkeeper_e2e::{Config, Ensemble};

const BOUND: Duration = Duration::from_secs(60);

#[test]
fn workers_run_one_after_the_other_in_the_order_in_which_they_queued() {
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/report";
    let mut workers = Vec::new();
    for name in ["first", "second", "third"] {
        let options = Options::new(&ensemble, name, lock)
            .unwrap()
            .with_recorder(&["--hold", "300ms"]);
        let worker = Worker::start(&ensemble, options).unwrap();
        if workers.is_empty() {
            worker.wait_until_it_runs(0, BOUND).unwrap();
        }
        workers.push(worker);
    }
    for worker in &mut workers {
        assert!(
            worker.wait_until_it_ends(BOUND).unwrap().success(),
            "{}",
            worker.log()
        );
    }
    let report = check(&worker::all_records(&workers).unwrap(), Rule::Exclusive);
    println!("{report}");
    assert!(report.is_clean());
    assert_eq!(report.holds.len(), 3);
    assert_eq!(report.holds[0].name, "first");
}
