//! `make bench`, second part: from the last instruction of one guarded program to the first of the
//! next, by clean releases, between `lockkeeper run`s on three servers.

use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_product::worker::{self, Options, Worker};
use lockkeeper_testbed::{Config, Ensemble};

/// Runs in the queue at once, each of which gives one handoff.
const WORKERS: usize = 20;
/// The number of queues.
const ROUNDS: usize = 5;
/// Bound for a whole round on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

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
                .with_recorder(&["--hold", "100ms", "--period", "1ms"]);
                Worker::start(&ensemble, options)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut workers = workers;
        for worker in &mut workers {
            anyhow::ensure!(worker.wait_until_it_ends(BOUND)?.success(), "{}", worker.log());
        }
        let report = check(&worker::all_records(&workers)?, Rule::Exclusive);
        anyhow::ensure!(report.is_clean(), "{report}");
        // The first handoffs may have come before the queue was full: only the later half counts.
        gaps.extend(
            report
                .gaps
                .iter()
                .filter(|(hold, _)| *hold >= WORKERS / 2)
                .map(|&(_, gap)| gap),
        );
    }
    gaps.sort();
    let at = |percent: usize| gaps[(gaps.len() * percent / 100).min(gaps.len() - 1)].as_secs_f64() * 1e3;
    println!(
        "Child to child, clean release, three servers, {} handoffs:",
        gaps.len()
    );
    println!("p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms", at(50), at(90), at(99));
    Ok(())
}
