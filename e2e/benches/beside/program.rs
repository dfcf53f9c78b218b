//! The time from a release to the next holder in this state and in an earlier one, in one process, on one server, at the
//! same time.
//!
//! Two runs of one program differ by up to a half: a virtual machine, a Java server and a scheduler change from second to
//! second. So both states hand over their locks at the same time, and what counts is the ratio of their medians in the same
//! seconds. The lock of `zookeeper-client`, which is the same in both, shows what ratio the noise alone makes.

use std::time::Duration;

use anyhow::Context;
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::{Config, Ensemble};

/// Sizes of the queue, as in `make bench`.
const CONTENDERS: [usize; 3] = [2, 50, 500];
/// Handoffs in one measurement.
const HANDOFFS: usize = 300;

/// Medians of one turn, in seconds.
struct Turn {
    before: f64,
    this: f64,
}

fn main() -> anyhow::Result<()> {
    let numbers = std::env::args().skip(1).map(|number| number.parse());
    let numbers: Vec<usize> = numbers
        .collect::<Result<_, _>>()
        .context("an argument is no number")?;
    let (&turns, sizes) = numbers.split_first().context("the number of turns is missing")?;
    let sizes = if sizes.is_empty() { &CONTENDERS } else { sizes };
    let ensemble = Ensemble::start(Config {
        servers: 1,
        tick: Duration::from_secs(2),
        ..Config::default()
    })?;
    println!(
        "Release to next holder, p50 of {HANDOFFS} handoffs, {turns} turns of both states at the same time."
    );
    println!("In brackets: where the median of the ratios lies with 95 % confidence.\n");
    println!("| contenders of each | before | this | this of before | zookeeper-client: this of before |");
    println!("|---|---|---|---|---|");
    for &contenders in sizes {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first turn warms server and process up, and does not count.
        for turn in 0..=turns {
            ours.push(lockkeeper(&ensemble, contenders, turn)?);
            theirs.push(zookeeper_client(&ensemble, contenders, turn)?);
        }
        let (ours, theirs) = (&ours[1..], &theirs[1..]);
        println!(
            "| {contenders} | {:.3} ms | {:.3} ms | {} | {} |",
            1e3 * middle(ours.iter().map(|turn| turn.before).collect()).1,
            1e3 * middle(ours.iter().map(|turn| turn.this).collect()).1,
            ratio(ours),
            ratio(theirs),
        );
    }
    Ok(())
}

fn lockkeeper(ensemble: &Ensemble, contenders: usize, turn: usize) -> anyhow::Result<Turn> {
    let connect = ensemble.connect_string();
    let root = |state: &str| format!("/beside/{state}-{contenders}-{turn}");
    let (before, this) = (root("before"), root("this"));
    at_once(
        ensemble,
        || state_before::contenders::lockkeeper(&connect, &before, contenders, HANDOFFS),
        || state_this::contenders::lockkeeper(&connect, &this, contenders, HANDOFFS),
    )
}

fn zookeeper_client(ensemble: &Ensemble, contenders: usize, turn: usize) -> anyhow::Result<Turn> {
    let connect = ensemble.connect_string();
    let root = |state: &str| format!("/beside/client-{state}-{contenders}-{turn}");
    let (before, this) = (root("before"), root("this"));
    at_once(
        ensemble,
        || state_before::contenders::zookeeper_client(&connect, &before, contenders, HANDOFFS),
        || state_this::contenders::zookeeper_client(&connect, &this, contenders, HANDOFFS),
    )
}

/// Both at the same time, each on a thread of its own.
fn at_once<B, T>(
    ensemble: &Ensemble,
    before: impl FnOnce() -> B + Send,
    this: impl FnOnce() -> T + Send,
) -> anyhow::Result<Turn>
where
    B: Future<Output = Vec<Duration>>,
    T: Future<Output = Vec<Duration>>,
{
    let host = ensemble.observer();
    let (before, this) = std::thread::scope(|scope| {
        let before = scope.spawn(|| block_on(host, before));
        let this = block_on(host, this);
        (before.join().expect("it does not panic"), this)
    });
    Ok(Turn::of(before?, this?))
}

impl Turn {
    fn of(before: Vec<Duration>, this: Vec<Duration>) -> Self {
        let median = |samples: Vec<Duration>| middle(samples.iter().map(Duration::as_secs_f64).collect()).1;
        Self {
            before: median(before),
            this: median(this),
        }
    }
}

/// The median of the turns' ratios, and its interval.
fn ratio(turns: &[Turn]) -> String {
    let (low, median, high) = middle(turns.iter().map(|turn| turn.this / turn.before).collect());
    format!("{median:.2} ({low:.2} to {high:.2})")
}

/// The median, and between which of the values it lies with a confidence of 95 %, by the binomial distribution of how
/// many values are below it, whatever their own distribution is.
fn middle(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let mut outside = 0;
    // The chance that exactly `outside` of the values are below the median, and that at most as many are.
    let mut chance = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut sum = chance;
    while sum <= 0.025 && outside < count / 2 {
        outside += 1;
        chance *= (count - outside + 1) as f64 / outside as f64;
        sum += chance;
    }
    let low = outside.saturating_sub(1);
    (values[low], values[count / 2], values[count - 1 - low])
}
