//! A keeper that is killed: the next one goes on with its session, and the application notices nothing.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Moment;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Worker;
use lockkeeper_product::worker::keeper_of;
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;
use rustix::process::Pid;

use crate::ending::{TELL_SOCKET, assert_nothing_is_left};
use crate::harness::{BOUND, CALM, Run, contenders, ensemble, wait_for_contenders, worker};

/// Kills the keeper, and waits for the next one.
fn kill_the_keeper(keeper_of: impl Fn() -> Option<Pid>) {
    let killed = wait_for(BOUND, &keeper_of).expect("it has a keeper");
    faults::kill(killed).unwrap();
    let next = || keeper_of().filter(|keeper| *keeper != killed);
    wait_for(BOUND, next).expect("another keeper is started");
}

/// Waits until its application has written for this long.
fn goes_on_for(worker: &Worker, time: Duration) {
    let end = BootInstant::now() + time;
    // It cannot be so before, and reading all records again and again takes a core.
    std::thread::sleep(time);
    let is_there = || (worker.records().ok()?.last()?.at > end).then_some(());
    wait_for(BOUND, is_there).unwrap_or_else(|| panic!("{}", worker.log()));
}

#[test]
fn an_application_goes_on_under_the_same_token_whenever_its_keeper_is_killed() {
    let ensemble = ensemble();
    let lock = "/keepers/killed";
    let holder = worker(&ensemble, "keeper-killed", lock, &[], &[]);
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = worker(&ensemble, "keeper-waiter", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);
    let (queue, program) = (contenders(&ensemble, lock), holder.program_pid());
    for _ in 0..3 {
        kill_the_keeper(|| holder.keeper_pid());
        // Longer than the deadline that the killed keeper gave, and than its session would have lived without the next.
        goes_on_for(&holder, CALM * 3 / 2);
    }
    assert_eq!(contenders(&ensemble, lock), queue);
    assert_eq!(holder.program_pid(), program);
    assert!(waiter.records().unwrap().is_empty(), "{}", waiter.log());
    let records = holder.records().unwrap();
    let begins = records
        .iter()
        .filter(|record| matches!(record.moment, Moment::Begin { .. }));
    assert_eq!(begins.count(), 1);
    assert!(records.iter().all(|record| record.token == token));
    let report = check(&records, Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 1, "{report}");
}

#[test]
fn a_run_whose_keeper_was_killed_ends_with_its_command_and_frees_the_lock_at_once() {
    let ensemble = ensemble();
    let lock = "/keepers/ends";
    let end = ensemble.directory().join("keeper-ends.end");
    let script = format!(
        "echo runs; until [ -e {} ]; do sleep 0.05; done; exit 7",
        end.display()
    );
    let mut run = Run::start(&ensemble, "keeper-ends", lock, &[], &["sh", "-c", &script]);
    run.first_line();
    let guard = run.process.pid();
    let holds = || run.stderr().matches("lock.to=\"Held\"").count();
    let before = holds();
    kill_the_keeper(|| keeper_of(guard));
    let holds_again = || (holds() > before).then_some(());
    wait_for(BOUND, holds_again).unwrap_or_else(|| panic!("{}", run.stderr()));
    std::fs::write(end, "").unwrap();
    assert_eq!(run.code(), 7, "{}", run.stderr());
    let ended = BootInstant::now();
    wait_for_contenders(&ensemble, lock, 0);
    assert!(BootInstant::now() - ended < CALM / 2, "it was left to expire");
}

#[test]
fn a_waiter_whose_keeper_is_killed_queues_again_and_is_served() {
    let ensemble = ensemble();
    let lock = "/keepers/waits";
    let mut holder = worker(&ensemble, "keeper-holder", lock, &[], &[]);
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = worker(&ensemble, "keeper-waits", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);
    kill_the_keeper(|| waiter.keeper_pid());
    wait_for_contenders(&ensemble, lock, 2);
    holder.guard().kill();
    waiter.wait_until_it_runs(token, BOUND).unwrap();
    let records = [holder.records().unwrap(), waiter.records().unwrap()].concat();
    let report = check(&records, Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}

#[test]
fn a_run_whose_keepers_end_again_and_again_stops_its_command_at_the_deadline() {
    let ensemble = ensemble();
    let lock = "/keepers/gives-up";
    let mut run = Run::start(&ensemble, "keeper-gives-up", lock, &[], &TELL_SOCKET);
    let socket = PathBuf::from(run.first_line());
    let guard = run.process.pid();
    let mut killed = None;
    // Each as soon as it is there, until there is no other.
    let all_killed = || {
        if let Some(keeper) = keeper_of(guard).filter(|keeper| killed != Some(*keeper)) {
            let _ = faults::kill(keeper);
            killed = Some(keeper);
        }
        has_ended(guard).then_some(())
    };
    wait_for(BOUND, all_killed).expect("it ends at the deadline");
    assert_eq!(run.code(), 75, "{}", run.stderr());
    assert_nothing_is_left(&socket);
}

fn has_ended(guard: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", guard.as_raw_nonzero()));
    status.map_or(true, |status| status.contains(") Z "))
}
