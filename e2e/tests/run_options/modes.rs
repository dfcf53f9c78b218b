//! The access modes, and the delay between two holders.

use std::time::Duration;

use lockkeeper_judge::checker::{Report, Rule, check};
use lockkeeper_judge::record::Moment;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::worker::{Options, Worker, all_records};
use lockkeeper_testbed::eventually::eventually;
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;
use rustix::process::Signal;
use zookeeper_client::{Acls, CreateMode};

use crate::harness::{BOUND, Run, contenders, ensemble, wait_for_contenders, with_client, worker};

/// Longer than any handoff takes on a busy machine.
const LOCK_DELAY: Duration = Duration::from_secs(6);

fn finish(workers: &mut [Worker], rule: Rule) -> Report {
    for worker in workers.iter_mut() {
        let status = worker.wait_until_it_ends(BOUND).unwrap();
        assert!(status.success(), "{status}:\n{}", worker.log());
    }
    let report = check(&all_records(workers.iter()).unwrap(), rule);
    println!("{report}");
    assert!(report.is_clean());
    report
}

/// The most holds at one moment.
fn most_at_once(report: &Report) -> usize {
    let holds = &report.holds;
    let at_begin = |index: usize| {
        let running = |hold: &&lockkeeper_judge::checker::Hold| {
            hold.begin <= holds[index].begin && hold.end >= holds[index].begin
        };
        holds.iter().filter(running).count()
    };
    (0..holds.len()).map(at_begin).max().unwrap_or(0)
}

#[test]
fn of_four_workers_of_a_semaphore_two_run_and_never_three() {
    let ensemble = ensemble();
    let mut workers: Vec<_> = ["one", "two", "three", "four"]
        .into_iter()
        .map(|name| {
            let name = format!("semaphore-{name}");
            worker(
                &ensemble,
                &name,
                "/modes/semaphore",
                &["--max-holders", "2"],
                &["--hold", "2s"],
            )
        })
        .collect();
    let report = finish(&mut workers, Rule::AtMost(2));
    assert_eq!((report.holds.len(), most_at_once(&report)), (4, 2));
}

#[test]
fn who_is_set_to_another_kind_or_number_of_holders_is_refused_with_both_settings_and_runs_beside_nobody() {
    let ensemble = ensemble();
    for (kind, options, setting) in [
        (
            "number",
            ["--max-holders", "2"],
            "set to kind exclusive with maxHolders 2",
        ),
        ("reader", ["--access", "read"], "set to kind readWrite"),
        ("writer", ["--access", "write"], "set to kind readWrite"),
    ] {
        let lock = format!("/modes/agreement-{kind}");
        let named = |name: &str| format!("agreement-{kind}-{name}");
        let mut first = worker(&ensemble, &named("first"), &lock, &[], &[]);
        first.wait_until_it_runs(0, BOUND).unwrap();
        let hold = ["--hold", "100ms"];
        let mut other = worker(&ensemble, &named("other"), &lock, &options, &hold);
        let status = other.wait_until_it_ends(BOUND).unwrap();
        let said = other.log();
        println!("{said}");
        first.guard().signal(Signal::TERM);
        let status_of_first = first.wait_until_it_ends(BOUND).unwrap();
        assert!(status_of_first.success(), "{status_of_first}");
        let report = check(&all_records([&first, &other]).unwrap(), Rule::Exclusive);
        assert!(report.is_clean() && report.holds.len() == 1, "{report}");
        assert_eq!(status.code(), Some(77));
        for part in [&lock, "agreed on kind exclusive with maxHolders 1", setting] {
            assert!(said.contains(part), "{part} is not in\n{said}");
        }
        // The queue is empty.
        let mut later = worker(&ensemble, &named("later"), &lock, &options, &hold);
        assert!(
            later.wait_until_it_ends(BOUND).unwrap().success(),
            "{}",
            later.log()
        );
    }
}

#[test]
fn the_lock_is_not_taken_beside_an_unknown_client_whom_the_log_names() {
    let ensemble = ensemble();
    let lock = "/modes/stranger";
    let open = Acls::anyone_all();
    let started = with_client(&ensemble, async |client| {
        client
            .mkdir(lock, &CreateMode::Persistent.with_acls(open))
            .await?;
        let theirs = CreateMode::EphemeralSequential.with_acls(open);
        let (_, number) = client.create(&format!("{lock}/n_"), b"", &theirs).await?;
        let run = Run::start(&ensemble, "stranger", lock, &[], &["echo", "ran"]);
        let sentence = format!("{lock}/n_0000000000 belongs to a client of an unknown kind");
        // Their session lives as long as this future runs.
        eventually(&sentence, async || run.stderr().contains(&sentence).then_some(())).await;
        assert_eq!(run.stdout(), "");
        client.delete(&format!("{lock}/n_{number}"), None).await?;
        Ok(run)
    });
    let mut run = started.unwrap();
    assert_eq!(run.code(), 0, "{}", run.stderr());
    assert_eq!(run.stdout(), "ran\n");
}

#[test]
fn readers_run_together_and_a_writer_alone() {
    let ensemble = ensemble();
    let lock = "/modes/read-write";
    let reader = |name: &str| worker(&ensemble, name, lock, &["--access", "read"], &["--read"]);
    let mut first = reader("rw-reader-1");
    let token = first.wait_until_it_runs(0, BOUND).unwrap();
    let mut second = reader("rw-reader-2");
    second.wait_until_it_runs(token, BOUND).unwrap();
    let writer = worker(
        &ensemble,
        "rw-writer",
        lock,
        &["--access", "write"],
        &["--hold", "1s"],
    );
    wait_for_contenders(&ensemble, lock, 3);
    // This reader is behind the writer: it waits, though readers hold.
    let mut late = reader("rw-reader-3");
    wait_for_contenders(&ensemble, lock, 4);
    let runs = || (!late.records().unwrap().is_empty()).then_some(());
    assert_eq!(wait_for(Duration::from_secs(1), runs), None, "{}", late.log());
    first.guard().signal(Signal::TERM);
    second.guard().signal(Signal::TERM);
    late.wait_until_it_runs(token, BOUND).unwrap();
    late.guard().signal(Signal::TERM);
    let report = finish(&mut [first, second, writer, late], Rule::ReadWrite);
    assert_eq!((report.holds.len(), most_at_once(&report)), (4, 2));
    let order: Vec<_> = report.holds.iter().map(|hold| hold.name.as_str()).collect();
    assert_eq!(order[2..], ["rw-writer", "rw-reader-3"]);
}

#[test]
fn the_lock_delay_passes_after_a_killed_holder_and_not_after_a_clean_release() {
    let ensemble = ensemble();
    let lock = "/modes/lock-delay";
    let delay = format!("{}s", LOCK_DELAY.as_secs());
    let deletions = DeletionWatch::begin(&ensemble, lock).unwrap();
    let start = |name: &str| {
        let options = Options {
            // The test waits for the end of one session.
            session_timeout: Duration::from_secs(15),
            ..Options::new(&ensemble, name, lock).unwrap()
        };
        Worker::start(&ensemble, options.with_run(&["--lock-delay", &delay])).unwrap()
    };
    let began = |next: &Worker, token: i64| {
        let next_token = next.wait_until_it_runs(token, BOUND).unwrap();
        let records = next.records().unwrap();
        let first = records.iter().find(|record| record.token == next_token);
        first.unwrap().at
    };

    let mut first = start("delay-first");
    let token = first.wait_until_it_runs(0, BOUND).unwrap();
    let second = start("delay-second");
    wait_for_contenders(&ensemble, lock, 2);
    first.guard().signal(Signal::TERM);
    let clean = began(&second, token) - deletions.wait_for_deletion(token, BOUND).unwrap();

    let token = second.wait_until_it_runs(0, BOUND).unwrap();
    let third = start("delay-third");
    wait_for_contenders(&ensemble, lock, 2);
    let killed = [
        second.keeper_pid(),
        second.program_pid(),
        Some(second.guard_pid()),
    ];
    // A guard that runs would start another keeper, which would release the lock.
    faults::stop(second.guard_pid()).unwrap();
    for pid in killed {
        faults::kill(pid.expect("it runs")).unwrap();
    }
    // The test may see the deletion of its node late. When this look began, the node certainly existed.
    let mut last_look = BootInstant::now();
    let is_gone = || {
        let look = BootInstant::now();
        if contenders(&ensemble, lock).unwrap().len() == 1 {
            return Some(());
        }
        last_look = look;
        None
    };
    wait_for(BOUND, is_gone).expect("its session expires");
    let unclean = began(&third, token) - last_look;
    println!(
        "--lock-delay {delay}: {clean:?} after a clean release, {unclean:?} after the death of a holder"
    );
    assert!(clean < LOCK_DELAY, "{clean:?}");
    assert!(unclean >= LOCK_DELAY, "{unclean:?}");
}

#[test]
fn a_command_that_exits_keeps_the_lock_with_on_exit_hold() {
    let ensemble = ensemble();
    let lock = "/modes/on-exit-hold";
    let options = ["--on-exit", "hold", "--restart", "always"];
    let holder = worker(&ensemble, "hold-first", lock, &options, &["--hold", "200ms"]);
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = worker(&ensemble, "hold-second", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);
    let starts = || {
        let records = holder.records().unwrap();
        assert!(
            records.iter().all(|record| record.token == token),
            "{}",
            holder.log()
        );
        records
            .iter()
            .filter(|record| matches!(record.moment, Moment::Begin { .. }))
            .count()
    };
    let before = starts();
    wait_for(BOUND, || (starts() >= before + 3).then_some(())).expect("it is started again and again");
    assert!(waiter.records().unwrap().is_empty());
}

#[test]
fn a_command_that_exits_gives_the_lock_to_the_next_one_by_default() {
    let ensemble = ensemble();
    let lock = "/modes/on-exit-release";
    let start = |name: &str| {
        worker(
            &ensemble,
            name,
            lock,
            &["--restart", "always"],
            &["--hold", "200ms"],
        )
    };
    let first = start("release-on-exit-1");
    let token = first.wait_until_it_runs(0, BOUND).unwrap();
    let second = start("release-on-exit-2");
    let next = second.wait_until_it_runs(token, BOUND).unwrap();
    first.wait_until_it_runs(next, BOUND).unwrap();
    let report = check(&all_records([&first, &second]).unwrap(), Rule::Exclusive);
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_run_inside_a_run_of_the_same_lock_starts_at_once_under_its_token_and_releases_nothing() {
    let ensemble = ensemble();
    let lock = "/modes/reentrant";
    let lockkeeper = lockkeeper_product::binaries::lockkeeper().unwrap();
    let goes_on = ensemble.directory().join("reentrant-goes-on");
    let script = format!(
        "echo $LOCKKEEPER_FENCING_TOKEN\n\
         {} run --connect {} --lock {lock} --session-timeout 4s --stop-grace 400ms --tick-time 1s -- \
         sh -c 'echo $LOCKKEEPER_FENCING_TOKEN; exit 5'\n\
         echo inner $?\nuntil test -e {}; do sleep 0.1; done",
        lockkeeper.display(),
        ensemble.connect_string(),
        goes_on.display()
    );
    let mut outer = Run::start(&ensemble, "reentrant", lock, &[], &["sh", "-c", &script]);
    assert_eq!(outer.line(2), "inner 5", "{}", outer.stderr());
    assert_eq!(outer.line(0), outer.line(1));
    assert_eq!(
        contenders(&ensemble, lock).unwrap().len(),
        1,
        "the lock is still the outer one's"
    );
    std::fs::write(&goes_on, "").unwrap();
    assert_eq!(outer.code(), 0, "{}", outer.stderr());
    assert_eq!(contenders(&ensemble, lock), Some(vec![]));
}

#[test]
fn a_run_inside_a_run_that_may_pause_it_is_refused_and_asks_for_no_lock() {
    let ensemble = ensemble();
    let lockkeeper = lockkeeper_product::binaries::lockkeeper().unwrap();
    let script = format!(
        "{} run --connect {} --lock /modes/paused -- echo ran; echo inner $?",
        lockkeeper.display(),
        ensemble.connect_string(),
    );
    for pause in [["--on-suspect", "pause"], ["--on-loss", "pause"]] {
        let command = ["sh", "-c", &script];
        let mut outer = Run::start(&ensemble, "pausing", "/modes/pausing", &pause, &command);
        assert_eq!(outer.line(0), "inner 64", "{}", outer.stderr());
        assert_eq!(outer.code(), 0, "{}", outer.stderr());
        let sentence = "the outer run, which holds /modes/pausing, may pause this run";
        assert!(outer.stderr().contains(sentence), "{}", outer.stderr());
    }
    assert_eq!(contenders(&ensemble, "/modes/paused"), None);
}
