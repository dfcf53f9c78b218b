//! A keeper that is killed: the next one goes on with its session, and the application notices nothing.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::{Moment, Records};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::worker::keeper_of;
use lockkeeper_product::{Worker, binaries};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, faults};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::Pid;

use crate::ending::{TELL_SOCKET, assert_nothing_is_left};
use crate::frozen::Disk;
use crate::harness::{
    BOUND, CALM, Run, client, contenders, ensemble, has_ended, wait_for_contenders, worker,
};

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

/// A run whose log cannot be written loses its keeper. It is given back after another holder had the lock.
fn goes_on_without_its_log(
    ensemble: &Ensemble,
    name: &str,
    stderr: &Path,
    keepers_log: &str,
    while_it_runs: impl FnOnce(),
) -> Run {
    let lock = format!("/keepers/{name}");
    let record = ensemble.directory().join(format!("{name}.record"));
    let socket = ensemble.directory().join(format!("{name}.sock"));
    let recorder = binaries::recorder().unwrap();
    let plain = Run::command(
        ensemble,
        &lock,
        &["--session-timeout", "20s", "--socket", socket.to_str().unwrap()],
        &[
            recorder.to_str().unwrap(),
            record.to_str().unwrap(),
            "--name",
            name,
        ],
    );
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$@" 2>>"$0""#]).arg(stderr);
    command.arg(plain.get_program()).args(plain.get_args());
    command.env("LOCKKEEPER_LOG", keepers_log);
    let run = Run::spawn(ensemble, name, command);
    let guard = run.process.pid();
    let records = || Records::read(&record).map_or(Vec::new(), |read| read.records);
    wait_for(BOUND, || (!records().is_empty()).then_some(())).expect("it runs");
    let token = records()[0].token;
    let next = worker(ensemble, &format!("{name}-next"), &lock, &[], &[]);
    wait_for_contenders(ensemble, &lock, 2);

    while_it_runs();
    kill_the_keeper(|| keeper_of(guard));
    let end = BootInstant::now() + Duration::from_secs(24);
    let is_there = || records().last().filter(|last| last.at > end).map(|_| ());
    wait_for(BOUND, is_there).expect("the application goes on");
    assert!(next.records().unwrap().is_empty(), "{}", next.log());

    assert_eq!(client(&["release", "--socket", socket.to_str().unwrap()]).0, 0);
    next.wait_until_it_runs(token, BOUND).unwrap();
    let report = check(&[records(), next.records().unwrap()].concat(), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
    run
}

#[test]
fn a_guard_whose_log_is_full_still_starts_the_next_keeper() {
    goes_on_without_its_log(&ensemble(), "full-log", Path::new("/dev/full"), "info", || {});
}

#[test]
fn a_guard_whose_log_is_on_a_disk_that_hangs_still_starts_the_next_keeper_and_tells_of_it_later() {
    let ensemble = ensemble();
    let directory = ensemble.directory().join("hanging-log");
    std::fs::create_dir(&directory).unwrap();
    let Some(disk) = Disk::new(&directory) else { return };
    let log = disk.0.join("log");
    // A keeper that writes to this disk when it is killed does not end before the disk is thawed.
    let _run = goes_on_without_its_log(&ensemble, "hanging-log", &log, "off", || disk.freeze());
    disk.thaw();
    let told = || {
        let text = std::fs::read_to_string(&log).ok()?;
        text.contains("s ago: the keeper has gone").then_some(())
    };
    wait_for(BOUND, told).expect("it is said when nothing runs");
}

#[test]
fn nobody_waits_for_a_frozen_reader_of_the_log_who_finds_the_lines_later() {
    let ensemble = ensemble();
    let path = ensemble.directory().join("frozen-reader");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let both_ends = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut reader = File::from(open(&path, both_ends, Mode::empty()).unwrap());
    // It is full from the start.
    while reader.write(&[b'\n'; 4096]).is_ok() {}
    let _run = goes_on_without_its_log(&ensemble, "frozen-reader", &path, "trace", || {});
    let mut text = Vec::new();
    let told = || {
        // It is read as far as there is something.
        let _ = reader.read_to_end(&mut text);
        String::from_utf8_lossy(&text)
            .contains("Lock state changed")
            .then_some(())
    };
    wait_for(BOUND, told).expect("the keeper's lines are there");
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
