//! `make bench`, first part: the time from a release to the next holder, side by side with Curator's
//! `InterProcessMutex` and with `zookeeper_client::Client::lock`, on one server, in one run.

#[path = "handoff/floor.rs"]
mod floor;
#[path = "handoff/rivals.rs"]
mod rivals;
#[path = "handoff/rounds.rs"]
mod rounds;

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use lockkeeper_campaign::other_clients::Bench;
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::{Config, Ensemble};
use serde::Deserialize;

/// Sizes of the queue. 2 is the shortest with a waiter.
const CONTENDERS: [usize; 3] = [2, 50, 500];
/// Measurements of each rival, in turn with the others, so that noise of the machine affects all alike.
const TURNS: u32 = 3;
/// Handoffs in a turn.
const HANDOFFS: usize = 300;

/// Medians of a rival's turns.
#[derive(Clone, Copy)]
struct Figures {
    p50: Duration,
    p99: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CuratorResult {
    rounds: Vec<CuratorRound>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CuratorRound {
    p50_micros: u64,
    p99_micros: u64,
}

fn main() -> anyhow::Result<()> {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        tick: Duration::from_secs(2),
        ..Config::default()
    })?;
    println!(
        "Release to next holder; everybody holds for {:?} and queues again. One server,",
        rounds::HOLD
    );
    println!(
        "no fsync; medians of {TURNS} turns of {HANDOFFS} handoffs each, the rivals in turn. The floor: a deletion at\none connection to its watch event at another.\n"
    );
    println!(
        "| contenders | | the floor | Curator InterProcessMutex | zookeeper-client lock() | Lockkeeper | of the floor | of Curator | of zookeeper-client |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut ours = Vec::new();
    for contenders in CONTENDERS {
        let [floor, curator, client, lockkeeper] = measure(&ensemble, contenders)?;
        for (name, pick) in [
            ("p50", (|f| f.p50) as fn(Figures) -> Duration),
            ("p99", |f| f.p99),
        ] {
            println!(
                "| {contenders} | {name} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} |",
                millis(pick(floor)),
                millis(pick(curator)),
                millis(pick(client)),
                millis(pick(lockkeeper)),
                pick(lockkeeper).as_secs_f64() / pick(floor).as_secs_f64(),
                pick(lockkeeper).as_secs_f64() / pick(curator).as_secs_f64(),
                pick(lockkeeper).as_secs_f64() / pick(client).as_secs_f64(),
            );
        }
        ours.push(lockkeeper.p50);
    }
    let growth = ours[CONTENDERS.len() - 1].as_secs_f64() / ours[0].as_secs_f64();
    println!(
        "\nLockkeeper, p50 at {} contenders: {growth:.2} of that at {}",
        CONTENDERS[2], CONTENDERS[0]
    );
    Ok(())
}

fn measure(ensemble: &Ensemble, contenders: usize) -> anyhow::Result<[Figures; 4]> {
    let mut turns: [Vec<Figures>; 4] = Default::default();
    for turn in 0..TURNS {
        let name = format!("floor-{contenders}-{turn}");
        turns[0].push(figures(floor::deletions(ensemble, &name)?));
        turns[1].push(curator(ensemble, contenders, turn)?);
        let connect = ensemble.connect_string();
        let root = format!("/bench/client-{contenders}-{turn}");
        turns[2].push(figures(block_on(ensemble.observer(), || {
            rivals::zookeeper_client(&connect, &root, contenders, HANDOFFS)
        })?));
        let root = format!("/bench/lockkeeper-{contenders}-{turn}");
        turns[3].push(figures(block_on(ensemble.observer(), || {
            rivals::lockkeeper(&connect, &root, contenders, HANDOFFS)
        })?));
    }
    Ok(turns.map(|turns| Figures {
        p50: median(turns.iter().map(|figures| figures.p50).collect()),
        p99: median(turns.iter().map(|figures| figures.p99).collect()),
    }))
}

fn curator(ensemble: &Ensemble, contenders: usize, turn: u32) -> anyhow::Result<Figures> {
    let bench = Bench {
        connect: ensemble.connect_string(),
        path: format!("/bench/curator-{contenders}-{turn}"),
        contenders: u32::try_from(contenders)?,
        // The first round warms Java up: it does not count.
        rounds: 2,
        handoffs: u32::try_from(HANDOFFS)?,
        hold: rounds::HOLD,
    };
    let mut command = bench.command()?;
    command.stdout(Stdio::piped());
    let mut process = ensemble.observer().spawn("Curator", command)?;
    let mut output = String::new();
    process
        .child_mut()
        .stdout
        .take()
        .expect("a pipe")
        .read_to_string(&mut output)?;
    let result: CuratorResult = serde_json::from_str(&output)?;
    let last = result.rounds.last().expect("two rounds");
    Ok(Figures {
        p50: Duration::from_micros(last.p50_micros),
        p99: Duration::from_micros(last.p99_micros),
    })
}

fn figures(mut samples: Vec<Duration>) -> Figures {
    samples.sort();
    let at = |percent: usize| samples[(samples.len() * percent / 100).min(samples.len() - 1)];
    Figures {
        p50: at(50),
        p99: at(99),
    }
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}
