//! Two guarded programs never run at the same moment: on a real ensemble, under one fault each.

use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::worker::{self, Options, Worker};
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};

const BOUND: Duration = Duration::from_secs(60);

/// The longest session of an ensemble with a tick of 1 s.
fn calm(options: Options) -> Options {
    Options {
        session_timeout: Duration::from_secs(20),
        ..options
    }
}

#[test]
fn workers_run_one_after_the_other_in_the_order_in_which_they_queued() {
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/report";
    let mut workers = Vec::new();
    for name in ["first", "second", "third"] {
        let options = calm(Options::new(&ensemble, name, lock).unwrap()).with_recorder(&["--hold", "300ms"]);
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

/// Stops the guard of a holder, and cuts the holder off when its keeper has sent the guard this many grants.
fn stop_the_guard_and_cut(lock: &str, run: &[&str], grants: u32) {
    let ensemble = Ensemble::start(Config::default()).unwrap();
    if let Err(reason) = ensemble.network().can_cut() {
        lockkeeper_skip::skip(reason);
        return;
    }
    let deletions = DeletionWatch::begin(&ensemble, lock).unwrap();
    let options = |name: &str| {
        let options = calm(Options::new(&ensemble, name, lock).unwrap());
        options.with_run(&["--lease-duration", "6s"])
    };
    let holding = options("holder").with_run(run).with_recorder(&["--fork", "1"]);
    let holder = Worker::start(&ensemble, holding).unwrap();
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = Worker::start(&ensemble, options("waiter")).unwrap();

    faults::stop(holder.guard_pid()).unwrap();
    let are_sent = || {
        holder
            .log()
            .contains(&format!("generation: {grants},"))
            .then_some(())
    };
    wait_for(BOUND, are_sent).unwrap_or_else(|| panic!("{}", holder.log()));
    let cut = BootInstant::now();
    for server in 0..ensemble.len() {
        ensemble
            .cut(&holder.options().host, ensemble.server(server))
            .unwrap();
    }
    waiter.wait_until_it_runs(token, BOUND).unwrap();
    let deleted = deletions
        .wait_for_deletion(token, BOUND)
        .expect("the ensemble gives the lock away");
    let last = holder.last_stamp(token).unwrap();
    println!(
        "gone {:?} before the leader deleted the node\n{}",
        deleted - last,
        holder.log()
    );
    let report = check(&worker::all_records([&holder, &waiter]).unwrap(), Rule::Exclusive);
    assert!(report.is_clean(), "{report}");
    assert!(cut < last && last < deleted, "{report}");
}

#[test]
fn a_stopped_guard_is_killed_with_all_that_it_started_before_its_lock_is_given_away() {
    stop_the_guard_and_cut("/locks/stopped-guard", &[], 1);
}

/// A socket takes 278 frames that nobody reads.
#[test]
fn a_guard_that_is_stopped_for_long_does_not_hold_up_its_keeper() {
    let run = ["--renew-interval", "20ms"];
    stop_the_guard_and_cut("/locks/full-socket", &run, 320);
}

#[test]
fn a_holder_that_is_cut_off_has_stopped_when_the_next_one_takes_its_place_long_before_its_session_ends() {
    let ensemble = Ensemble::start(Config::default()).unwrap();
    if let Err(reason) = ensemble.network().can_cut() {
        lockkeeper_skip::skip(reason);
        return;
    }
    let lock = "/locks/silent";
    let deletions = DeletionWatch::begin(&ensemble, lock).unwrap();
    let start = |name: &str| {
        let options = calm(Options::new(&ensemble, name, lock).unwrap());
        Worker::start(&ensemble, options.with_run(&["--lease-duration", "6s"])).unwrap()
    };
    let holder = start("holder");
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = start("waiter");
    // It is in the queue, and next.
    wait_for(BOUND, || (deletions.lives().len() == 2).then_some(())).expect("both are in the queue");
    for server in 0..ensemble.len() {
        ensemble
            .cut(&holder.options().host, ensemble.server(server))
            .unwrap();
    }
    waiter.wait_until_it_runs(token, BOUND).unwrap();
    let told = || {
        waiter
            .log()
            .contains("Took the place of a contender")
            .then_some(())
    };
    wait_for(BOUND, told).unwrap_or_else(|| panic!("{}", waiter.log()));
    let deleted = deletions
        .wait_for_deletion(token, BOUND)
        .expect("the waiter deletes it");
    let last = holder.last_stamp(token).unwrap();
    println!(
        "gone {:?} before its place was taken\n{}",
        deleted - last,
        holder.log()
    );
    let report = check(&worker::all_records([&holder, &waiter]).unwrap(), Rule::Exclusive);
    assert!(report.is_clean(), "{report}");
    assert!(last < deleted, "{report}");
}
