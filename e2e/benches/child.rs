//! `make bench`, second part: from the last instruction of one guarded program to the first of the
//! next, by clean releases, between `lockkeeper run`s on three servers.
//!
//! Below it are two floors, and such a handoff has both in it: between programs that a shell on one machine runs one
//! after the other; and from a deletion at one connection of a client to the watch event at another one.

#[path = "handoff/floor.rs"]
mod floor;

use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Records;
use lockkeeper_product::binaries;
use lockkeeper_product::worker::{self, Options, Worker};
use lockkeeper_testbed::{Config, Ensemble};

/// Runs in the queue at once, each of which gives one handoff.
const WORKERS: usize = 20;
/// The number of queues.
const ROUNDS: usize = 8;
/// The first queues do not count: the servers' Java interprets at first what it compiles later.
const WARM_UP: usize = 3;
/// Bound for a whole round on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// What each program does.
const RECORDER: [&str; 4] = ["--hold", "100ms", "--period", "1ms"];

fn main() -> anyhow::Result<()> {
    let ensemble = Ensemble::start(Config::default())?;
    let mut gaps = Vec::new();
    for round in 0..ROUNDS {
        let workers = (0..WORKERS)
            .map(|worker| {
                let options = Options::new(
                    &ensemble,
                    &format!("child-{round}-{worker}"),
                    &format!("/bench/{round}"),
                )?
                .with_recorder(&RECORDER);
                Worker::start(&ensemble, options)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut workers = workers;
        for worker in &mut workers {
            anyhow::ensure!(worker.wait_until_it_ends(BOUND)?.success(), "{}", worker.log());
        }
        let report = check(&worker::all_records(&workers)?, Rule::Exclusive);
        anyhow::ensure!(report.is_clean(), "{report}");
        if round < WARM_UP {
            continue;
        }
        // The first handoffs may have come before the queue was full: only the later half counts.
        gaps.extend(
            report
                .gaps
                .iter()
                .filter(|(hold, _)| *hold >= WORKERS / 2)
                .map(|&(_, gap)| gap),
        );
    }
    let own = print("Child to child, clean release, three servers", gaps);
    let shell = print("One program after the other in a shell", shell(&ensemble)?);
    let watch = print(
        "A deletion to its watch event, three servers",
        floor::deletions(&ensemble, "child")?,
    );
    println!(
        "Child to child is {:.1} times the shell, and {:.1} times the shell and the deletion together.",
        own / shell,
        own / (shell + watch)
    );
    Ok(())
}

/// The times between programs of a shell, which waits for one and starts the next.
fn shell(ensemble: &Ensemble) -> anyhow::Result<Vec<Duration>> {
    let record = ensemble.directory().join("floor");
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "for turn in $(seq \"$0\"); do LOCKKEEPER_FENCING_TOKEN=$turn \"$@\" || exit; done",
        ])
        .arg((WORKERS * (ROUNDS - WARM_UP) / 2).to_string())
        .arg(binaries::recorder()?)
        .arg(&record)
        .args(RECORDER);
    let mut shell = ensemble.observer().spawn("floor", command)?;
    let ended = shell.wait(BOUND)?;
    anyhow::ensure!(
        ended.is_some_and(|status| status.success()),
        "the shell did not end well"
    );
    let report = check(&Records::read(&record)?.records, Rule::Exclusive);
    anyhow::ensure!(report.is_clean(), "{report}");
    Ok(report.gaps.iter().map(|&(_, gap)| gap).collect())
}

/// Prints percentiles, and returns the median in seconds.
fn print(what: &str, mut gaps: Vec<Duration>) -> f64 {
    gaps.sort();
    let at = |percent: usize| gaps[(gaps.len() * percent / 100).min(gaps.len() - 1)].as_secs_f64();
    let millis = |percent| at(percent) * 1e3;
    println!("{what}, {} times:", gaps.len());
    println!(
        "p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms",
        millis(50),
        millis(90),
        millis(99)
    );
    at(50)
}
