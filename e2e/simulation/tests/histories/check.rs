//! What must be true of every history, with all faults.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_fake::{Happened, Record};
use lockkeeper_lock::{FencingToken, Mode};

/// An application that ran: true times since the world began.
#[derive(Clone, Debug)]
pub struct Work {
    pub process: usize,
    pub is_reader: bool,
    pub token: FencingToken,
    pub start: Duration,
    pub end: Duration,
}

/// How many may run together with `work`, including itself.
fn limit(mode: Mode) -> usize {
    match mode {
        Mode::Exclusive | Mode::Write | Mode::Read => 1,
        Mode::Semaphore(holders) => holders.get() as usize,
    }
}

fn path_of(records: &[Record], token: FencingToken) -> Option<&str> {
    records.iter().find_map(|record| match &record.happened {
        Happened::Created { path, zxid, .. } if *zxid == token.0 => Some(path.as_str()),
        _ => None,
    })
}

fn deleted(records: &[Record], path: &str) -> Option<Duration> {
    let at = records
        .iter()
        .find(|record| matches!(&record.happened, Happened::Deleted { path: gone } if gone == path));
    at.map(|record| record.at)
}

/// Checks everything that must be true of the applications. `by_hand` are the contenders that were deleted by hand, and
/// those of sessions that were ended by hand: for those exclusion is not promised.
pub fn all(mode: Mode, works: &[Work], records: &[Record], by_hand: &BTreeSet<String>) -> Result<(), String> {
    for work in works {
        let path = path_of(records, work.token).ok_or_else(|| format!("no client created {work:?}"))?;
        if by_hand.contains(path) {
            continue;
        }
        if let Some(gone) = deleted(records, path)
            && gone < work.end
        {
            return Err(format!(
                "{work:?} ran on after the ensemble had deleted {path} at {gone:?}"
            ));
        }
    }
    let rightful: Vec<&Work> = works
        .iter()
        .filter(|work| path_of(records, work.token).is_some_and(|path| !by_hand.contains(path)))
        .collect();
    for work in &rightful {
        // The applications that ran when this one began.
        let others: Vec<&&Work> = rightful
            .iter()
            .filter(|other| {
                other.start <= work.start
                    && work.start < other.end
                    && (other.token != work.token)
                    && !(other.is_reader && work.is_reader)
            })
            .collect();
        if others.len() >= limit(mode) {
            return Err(format!("{work:?} ran together with {others:?}"));
        }
    }
    if limit(mode) == 1 {
        order(&rightful)?;
    }
    Ok(())
}

/// Whether a contender was deleted by a release, which the same transaction records.
fn is_released(records: &[Record], path: &str, control: &str) -> bool {
    records.array_windows().any(|[noted, gone]| {
        let is_it = matches!(&gone.happened, Happened::Deleted { path: deleted } if deleted == path);
        let is_noted = matches!(&noted.happened, Happened::Changed { path } if path == control);
        is_it && is_noted && noted.at == gone.at
    })
}

/// If all wait for `delay` after a holder that did not release cleanly: checks that none begins before that time has
/// passed, however many have held and left meanwhile.
pub fn delays(works: &[Work], records: &[Record], control: &str, delay: Duration) -> Result<usize, String> {
    let mut checked = 0;
    for dead in works {
        let path = path_of(records, dead.token).ok_or_else(|| format!("no client created {dead:?}"))?;
        let Some(gone) = deleted(records, path).filter(|_| !is_released(records, path, control)) else {
            continue;
        };
        // The rates of clocks differ by this much.
        let until = gone + delay.mul_f64(0.98);
        let later = works
            .iter()
            .filter(|work| work.token > dead.token && !(work.is_reader && dead.is_reader));
        for work in later {
            checked += 1;
            if work.start < until {
                return Err(format!(
                    "{work:?} began before the delay was over after {dead:?}, which went at {gone:?}"
                ));
            }
        }
    }
    Ok(checked)
}

/// An application that begins later has the higher token, unless both only read.
fn order(works: &[&Work]) -> Result<(), String> {
    for work in works {
        let earlier = works.iter().find(|other| {
            other.start > work.start && other.token < work.token && !(other.is_reader && work.is_reader)
        });
        if let Some(other) = earlier {
            return Err(format!("{other:?} came before {work:?} in the queue"));
        }
    }
    Ok(())
}
