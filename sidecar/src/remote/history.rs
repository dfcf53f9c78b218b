//! `lockkeeper history`: who holds a lock and who has held it, by its control node and its queue.

use std::time::{Duration, SystemTime};

use lockkeeper_daemon::duration;
use lockkeeper_daemon::exit::{self, Failure};
use lockkeeper_daemon::table::{age, columns};
use lockkeeper_lock::{Control, Hold, HoldEnd, HolderPod};
use serde::Serialize;

use super::ensemble::Ensemble;
use super::entry::Entry;
use super::queue::{self, Depth, Queue};
use super::{control, missing, show};
use crate::args::{HistoryArgs, OutputFormat};

const COLUMNS: [&str; 7] = ["WHO", "NODE", "TOKEN", "SINCE", "UNTIL", "HELD", "ENDED"];

/// The column of the nodes of pods.
const NODE: usize = 1;

/// The holds of a lock, for people and programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Holds {
    lock: String,
    holders: Vec<Entry>,
    history: Vec<PastHold>,
}

/// A former holder.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PastHold {
    contender: String,
    fencing_token: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<HolderPod>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    ended: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_millis: Option<u64>,
    /// For people.
    #[serde(skip)]
    who: String,
}

/// See [`super::history()`].
pub(super) async fn history(args: HistoryArgs) -> Result<String, Failure> {
    let lock = args.lock.to_string();
    let is_given = args.control.is_some();
    let path = control::path(&lock, args.control);
    let ensemble = Ensemble::connect(args.ensemble).await?;
    // The record is read before and after the queue. Whom both name and the queue does not has gone. Whom only the second
    // names may have come since.
    let before = control::read(&ensemble, &path).await?;
    let queue = queue::read(&ensemble, &lock, Depth::All).await?;
    let queue = queue.ok_or_else(|| missing(&lock))?;
    let after = control::read(&ensemble, &path).await?;
    let (before, after) = match (before, after) {
        (_, None) if is_given => return Err(Failure::unavailable(control::missing(&path, "history"))),
        (_, None) => {
            exit::tell(&control::missing(&path, "history"));
            (Control::default(), Control::default())
        }
        (before, Some((_, after))) => (before.map(|(_, before)| before).unwrap_or_default(), after),
    };
    let holds = Holds::of(queue, &before, &after);
    Ok(match args.output.output {
        OutputFormat::Text => holds.table(show::now()),
        OutputFormat::Json => show::json(&holds),
    })
}

impl Holds {
    /// Of a queue, and what was recorded before and after it was read.
    fn of(queue: Queue, before: &Control, after: &Control) -> Self {
        let is_there = |hold: &Hold| queue.all().any(|one| one.contender == hold.contender);
        let was_open = |hold: &Hold| {
            let mut open = before.holds.iter().filter(|one| one.ended.is_none());
            open.any(|one| one.contender == hold.contender)
        };
        let history = after.holds.iter().filter_map(|hold| {
            let ended = match hold.ended {
                Some(ended) => ended,
                // Its end is not written down: nobody has held since.
                None if was_open(hold) && !is_there(hold) => after.hold_end(&hold.contender, hold.token),
                None => return None,
            };
            Some(PastHold::of(hold.clone(), ended))
        });
        let history: Vec<_> = history.collect();
        let has_ended = |one: &Entry| history.iter().any(|past| past.contender == one.contender);
        let holders = queue
            .holders
            .iter()
            .filter(|one| one.is_holding() && !has_ended(one));
        Self {
            holders: holders.cloned().collect(),
            lock: queue.lock,
            history,
        }
    }

    /// A line for each, the newest first.
    fn table(&self, now: SystemTime) -> String {
        let lock = &self.lock;
        if self.holders.is_empty() && self.history.is_empty() {
            return format!("Nobody holds {lock}, and no former holder is recorded.\n");
        }
        let dash = || "-".to_owned();
        let holders = self.holders.iter().rev().map(|one| {
            let held = one.age(now).map_or_else(dash, age);
            let token = one.fencing_token.map_or_else(dash, |token| token.to_string());
            [
                one.who(),
                one.node().unwrap_or_else(dash),
                token,
                time(one.since.as_deref()),
                dash(),
                held,
                "holds".to_owned(),
            ]
        });
        let past = self.history.iter().map(|past| {
            let node = past.pod.as_ref().map(|pod| pod.node.clone());
            let (since, until) = (past.since.as_deref(), past.until.as_deref());
            [
                past.who.clone(),
                node.unwrap_or_else(dash),
                past.fencing_token.to_string(),
                time(since),
                time(until),
                held(since, until).map_or_else(dash, age),
                past.ending(),
            ]
        });
        let heads = COLUMNS.map(str::to_owned);
        let mut rows: Vec<_> = std::iter::once(heads)
            .chain(holders)
            .chain(past)
            .map(Vec::from)
            .collect();
        // Machines have no nodes.
        if rows[1..].iter().all(|row| row[NODE] == "-") {
            rows.iter_mut().for_each(|row| drop(row.remove(NODE)));
        }
        let mut text = columns(&rows);
        if self.history.is_empty() {
            text += &format!("No former holder of {lock} is recorded.\n");
        }
        text
    }
}

impl PastHold {
    fn of(hold: Hold, ended: HoldEnd) -> Self {
        Self {
            who: hold.who(),
            contender: hold.contender,
            fencing_token: hold.token.0,
            pod: hold.pod,
            host: hold.host,
            since: hold.since,
            until: hold.until,
            ended: ended.as_str(),
            taken_by: hold.taken_by,
            silent_millis: hold.silent_millis,
        }
    }

    fn ending(&self) -> String {
        let by = self.taken_by.as_ref().map(|by| format!(" by {by}"));
        let silent = self.silent_millis.map(Duration::from_millis);
        let silent = silent.map(|silent| format!(" after {}", duration::format(silent)));
        [Some(self.ended.to_owned()), by, silent]
            .into_iter()
            .flatten()
            .collect()
    }
}

fn time(at: Option<&str>) -> String {
    at.unwrap_or("-").to_owned()
}

/// The two clocks may differ: then it may seem to have ended before it began.
fn held(since: Option<&str>, until: Option<&str>) -> Option<Duration> {
    let since = humantime::parse_rfc3339(since?).ok()?;
    let until = humantime::parse_rfc3339(until?).ok()?;
    Some(until.duration_since(since).unwrap_or_default())
}

#[cfg(test)]
mod tests;
