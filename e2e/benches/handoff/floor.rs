//! The floor below every lock on ZooKeeper: from a deletion at one connection to the watch event at another one.

use std::fs::{self, File};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_testbed::Ensemble;
use lockkeeper_testbed::binaries::{Linking, built};
use lockkeeper_testbed::process::wait_for;

/// As many count as do not count: first the client and the servers warm up.
const DELETIONS: usize = 200;
/// How long a node is there.
const HOLD: Duration = Duration::from_millis(5);
/// On a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// The times from a deletion to its event, by the floor of the crowds of the comparison. `name` is that of this
/// measurement.
pub fn deletions(ensemble: &Ensemble, name: &str) -> anyhow::Result<Vec<Duration>> {
    let crowd = built("lockkeeper-rivals", "lockkeeper-crowd", &[], Linking::Shared)?;
    let said = ensemble.directory().join(format!("deletions-{name}"));
    let mut command = Command::new(crowd);
    command
        .args(["--system", "floor", "--servers", &ensemble.connect_string()])
        .args(["--lock", name, "--crowd", "2", "--lease-ms", "15000"])
        .args(["--hold-ms", &HOLD.as_millis().to_string()])
        .stdout(File::create(&said)?);
    let _crowd = ensemble.observer().spawn("crowd", command)?;
    let times = wait_for(BOUND, || {
        let times = times_in(&fs::read_to_string(&said).unwrap_or_default());
        (times.len() >= 2 * DELETIONS).then_some(times)
    });
    let times = times.context("too few deletions")?;
    Ok(times[DELETIONS..].to_vec())
}

/// From each `releasing` to the next `held`, in lines of `lockkeeper-crowd`.
fn times_in(said: &str) -> Vec<Duration> {
    let events: Vec<Said> = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let pairs = events.windows(2).filter_map(|pair| match pair {
        [from, to] if from.event == "releasing" && to.event == "held" => Some(to.at.saturating_sub(from.at)),
        _ => None,
    });
    pairs.map(Duration::from_nanos).collect()
}

#[derive(serde::Deserialize)]
struct Said {
    event: String,
    at: u64,
}
