//! Follows the locks for the page, and knows when it does not.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Status;
use lockkeeper_crds::DistributedLock;
use lockkeeper_daemon::page::Board;

use super::row;
use crate::list::{self, GONE};
use crate::problem::failed;

/// The API server ends each watch after this time, in seconds. So a connection that is dead without a sign, as after a sleep
/// of this machine, is noticed.
const WATCH_SECONDS: u32 = 30;

/// Longer than a watch lasts: a server that says nothing for so long is away. Also the longest time for a list.
const SILENCE: Duration = Duration::from_secs(45);

/// Time before another attempt; it doubles from the first to the second.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(16)];

/// Keeps the board as the API server has the locks. It never ends: if the API server cannot be asked, the page says so, and
/// it asks again.
pub(super) async fn follow(locks: Api<DistributedLock>, selector: Option<String>, board: &Board) {
    let mut again = AGAIN[0];
    loop {
        let ended = match read(&locks, selector.as_ref(), board).await {
            Ok(version) => {
                again = AGAIN[0];
                watch(&locks, selector.clone(), version, board).await
            }
            Err(why) => Err(why),
        };
        if let Err(why) = ended {
            board.trouble(why);
        }
        // Also when the locks only have to be read again: a server that says so each time is not asked all the time.
        tokio::time::sleep(again).await;
        again = (again * 2).min(AGAIN[1]);
    }
}

/// All locks; returns their version.
async fn read(
    locks: &Api<DistributedLock>,
    selector: Option<&String>,
    board: &Board,
) -> Result<String, String> {
    let listed = tokio::time::timeout(SILENCE, list::read(locks, selector)).await;
    let (all, version) = listed
        .map_err(|_| silent())?
        .map_err(|failure| failure.sentence)?;
    board.replace(all.iter().map(|lock| (row::key(lock), row::json(lock))).collect());
    Ok(version)
}

/// What changes from a version on, by one watch after the other. `Ok` when the locks have to be read again.
async fn watch(
    locks: &Api<DistributedLock>,
    selector: Option<String>,
    mut version: String,
    board: &Board,
) -> Result<(), String> {
    let parameters = WatchParams {
        label_selector: selector,
        timeout: Some(WATCH_SECONDS),
        ..WatchParams::default()
    };
    let said = |error: &kube::Error| failed("watch locks", error).sentence;
    loop {
        let opened = tokio::time::timeout(SILENCE, locks.watch(&parameters, &version)).await;
        let mut events = pin!(opened.map_err(|_| silent())?.map_err(|error| said(&error))?);
        board.is_followed();
        while let Some(event) = tokio::time::timeout(SILENCE, events.next())
            .await
            .map_err(|_| silent())?
        {
            match event.map_err(|error| said(&error))? {
                WatchEvent::Added(lock) | WatchEvent::Modified(lock) => {
                    version = lock.metadata.resource_version.clone().unwrap_or(version);
                    board.set(row::key(&lock), row::json(&lock));
                }
                WatchEvent::Deleted(lock) => {
                    version = lock.metadata.resource_version.clone().unwrap_or(version);
                    board.remove(&row::key(&lock));
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) if status.code == GONE => return Ok(()),
                WatchEvent::Error(status) => return Err(refused(status)),
            }
        }
    }
}

fn refused(status: Box<Status>) -> String {
    failed("watch locks", &kube::Error::Api(status)).sentence
}

fn silent() -> String {
    format!("the API server has said nothing for {} s", SILENCE.as_secs())
}
