//! Follows the locks for the page.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::StreamExt as _;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use lockkeeper_crds::DistributedLock;

use super::board::Board;
use super::row;
use crate::problem::failed;

/// Keeps the board as the API server has the locks. It never ends: if the API server cannot be asked, the page says so, and
/// it asks again.
pub(super) async fn follow(locks: Api<DistributedLock>, selector: Option<String>, board: &Board) {
    let config = watcher::Config {
        label_selector: selector,
        ..watcher::Config::default()
    };
    let mut events = pin!(watcher::watcher(locks, config).default_backoff());
    // Of a list that is under way.
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(lock)) => drop(listed.insert(row::key(&lock), row::json(&lock))),
            Ok(Event::InitDone) => board.replace(std::mem::take(&mut listed)),
            Ok(Event::Apply(lock)) => board.set(row::key(&lock), row::json(&lock)),
            Ok(Event::Delete(lock)) => board.remove(&row::key(&lock)),
            Err(error) => board.trouble(said(error)),
        }
    }
}

fn said(error: watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => failed("watch locks", &error).sentence,
        watcher::Error::WatchError(status) => failed("watch locks", &kube::Error::Api(status)).sentence,
        watcher::Error::NoResourceVersion => "the API server's answer has no version".to_owned(),
    }
}
