//! Finds the locks, again and again: new ones come.

use std::collections::HashMap;
use std::time::Duration;

use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::BootInstant;
use tokio::sync::mpsc;

use super::super::ensemble::{Ensemble, failure};
use super::super::find::{Found, find};
use super::site::Site;
use crate::args::Pattern;

/// Least time between two searches.
const BETWEEN: Duration = Duration::from_secs(10);

/// And so many times as long as the last one took, so that searches cost the ensemble at most a tenth of its time.
const SHARE: u32 = 10;

/// Most locks on a page: each costs the ensemble a watch, and the browser a row. Five times as many as were measured.
const MOST_LOCKS: usize = 5_000;

/// Longest path of a lock, in bytes: a pattern matches at any depth, and each name may have 1,024.
const LONGEST_PATH: usize = 4_096;

/// What told a node that is no lock from others: when it was made, written, and when its children changed.
type Stamp = Option<(i64, i64, i64)>;

/// Sends the paths of nodes that may be locks and are not followed, until the connection is lost, and returns why.
pub(super) async fn search(
    site: &Site,
    ensemble: &Ensemble,
    pattern: &Pattern,
    found: mpsc::Sender<String>,
) -> Failure {
    let mut looked = HashMap::new();
    loop {
        let begun = BootInstant::now();
        match round(site, ensemble, pattern, &found, &mut looked).await {
            Ok(left_out) => site.searched(left_out),
            Err(failure) if ensemble.is_intact() => site.searched(vec![failure.sentence]),
            Err(failure) => return failure,
        }
        let took = BootInstant::now() - begun;
        tokio::time::sleep((took * SHARE).max(BETWEEN)).await;
    }
}

/// Returns what cannot be looked at, and why.
async fn round(
    site: &Site,
    ensemble: &Ensemble,
    pattern: &Pattern,
    found: &mpsc::Sender<String>,
    looked: &mut HashMap<String, Stamp>,
) -> Result<Vec<String>, Failure> {
    let Found { mut paths, left_out } = find(ensemble, pattern).await?;
    paths.retain(|path| path.len() <= LONGEST_PATH);
    looked.retain(|path, _| paths.contains(path));
    site.keep(&paths);
    let mut left_out = left_out.nodes;
    for path in paths {
        if site.is_followed(&path) {
            continue;
        }
        if site.locks() >= MOST_LOCKS {
            left_out.push(format!(
                "all locks after {MOST_LOCKS}: write a narrower pattern with --lock"
            ));
            break;
        }
        let stamp = match ensemble.node(&path, 0).await {
            Ok(None) => continue,
            Ok(Some(node)) => node.stat.map(|stat| (stat.czxid, stat.mzxid, stat.pzxid)),
            Err(error) => {
                let failure = failure(&error, &format!("cannot read {path}"));
                if !ensemble.is_intact() {
                    return Err(failure);
                }
                left_out.push(failure.sentence);
                continue;
            }
        };
        // It was no lock, and nothing has happened to it.
        if stamp.is_some() && looked.get(&path) == Some(&stamp) && !site.is_unreadable(&path) {
            continue;
        }
        looked.insert(path.clone(), stamp);
        site.start(&path);
        if found.send(path).await.is_err() {
            return Err(Failure::software("nobody follows what is found"));
        }
    }
    Ok(left_out)
}
