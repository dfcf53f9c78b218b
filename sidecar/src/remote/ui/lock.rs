//! Follows one lock over one connection.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::{BootInstant, is_contender};
use zookeeper_client as zk;

use super::super::ensemble::Ensemble;
use super::super::entry::Entry;
use super::super::queue::{self, Depth, Queue};
use super::super::show::now;
use super::super::watch::{UNTOLD, pause};
use super::past::Moments;
use super::site::Site;
use super::status::holding;

/// After this time the queue is read also if only renewals are heard: each may have brought something new, such as survivors,
/// and to read a node for each renewal would cost the ensemble a thousand reads a second with a thousand locks.
const AMONG_RENEWALS: Duration = Duration::from_secs(30);

/// When the children of a node changed last.
type Changed = Option<i64>;

/// Contenders whose moments are kept between two readings.
const MOST_MOMENTS: usize = 64;

/// Why a lock is followed no more over this connection.
pub(super) enum Ended {
    /// The node is none of a lock, or it is gone.
    NoLock,
    /// It has never been read, for this reason.
    Unreadable(Failure),
    /// The connection is lost.
    Lost(Failure),
}

/// What an event is about.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// A contender has written. It may have renewed.
    Written,
    /// Something that says nothing of this queue.
    Other,
    /// The queue has changed.
    Changed,
    /// The connection.
    Lost,
}

/// Puts the lock on the page, and keeps it there as the ensemble has it.
pub(super) async fn follow(site: &Site, ensemble: &Ensemble, path: &str) -> Ended {
    let watcher = match ensemble.watch(path).await {
        Ok(watcher) => watcher,
        Err(failure) => return unread(ensemble, failure),
    };
    let mut lock = Following {
        site,
        watcher,
        path: ensemble.whole(path),
        number: None,
        holders: HashSet::new(),
        moments: Moments::default(),
        is_written: false,
    };
    loop {
        let changed = changed(ensemble, path).await;
        let reading = site.place().await;
        let begun = BootInstant::now();
        let read = queue::read(ensemble, path, Depth::First).await;
        let took = BootInstant::now() - begun;
        drop(reading);
        let is_calm = match read {
            Ok(Some(queue)) if lock.number.is_some() || queue.is_lock() => lock.show(queue),
            Ok(_) => return Ended::NoLock,
            Err(failure) if lock.number.is_none() || !ensemble.is_intact() => {
                return unread(ensemble, failure);
            }
            Err(failure) => {
                site.doubt(path, &failure.sentence);
                false
            }
        };
        let is_due = async || {
            loop {
                tokio::time::sleep(UNTOLD).await;
                // Servers tell nothing of nodes that we may not read.
                if self::changed(ensemble, path).await != changed || changed.is_none() {
                    return;
                }
            }
        };
        if !lock.wait(is_calm, is_due(), took).await {
            return Ended::Lost(Failure::unavailable("the connection to the ensemble was lost"));
        }
    }
}

/// When the children of a lock changed last, if that can be read.
async fn changed(ensemble: &Ensemble, path: &str) -> Changed {
    let node = ensemble.node(path, 0).await.ok().flatten()?;
    node.stat.map(|stat| stat.pzxid)
}

fn unread(ensemble: &Ensemble, failure: Failure) -> Ended {
    match ensemble.is_intact() {
        true => Ended::Unreadable(failure),
        false => Ended::Lost(failure),
    }
}

struct Following<'a> {
    site: &'a Site,
    watcher: zk::PersistentWatcher,
    /// The path of the servers.
    path: String,
    /// Under which its renewals are noted, once it is on the page.
    number: Option<u64>,
    /// The names of its holders.
    holders: HashSet<String>,
    moments: Moments,
    /// Whether a contender has written since the last reading.
    is_written: bool,
}

impl Following<'_> {
    /// Returns whether further writes of its contenders are renewals only.
    fn show(&mut self, queue: Queue) -> bool {
        let moments = std::mem::take(&mut self.moments);
        self.is_written = false;
        self.holders = holding(&queue).map(|one| one.contender.clone()).collect();
        // Who is first and does not say that it holds will say so by a write.
        let is_calm = queue.holders.iter().all(Entry::is_holding);
        self.number = Some(self.site.show(queue, &moments));
        is_calm
    }

    /// Waits until the queue has to be read again, at the latest when `due` completes; then for a while, in which further
    /// changes come to the same reading. False if the connection is lost.
    async fn wait(&mut self, is_calm: bool, due: impl Future<Output = ()>, took: Duration) -> bool {
        let among_renewals = tokio::time::sleep(AMONG_RENEWALS);
        tokio::pin!(due, among_renewals);
        loop {
            tokio::select! {
                biased;
                event = self.watcher.changed() => match self.hear(&event) {
                    Heard::Lost => return false,
                    Heard::Written if !is_calm => break,
                    Heard::Written | Heard::Other => {}
                    Heard::Changed => break,
                },
                () = &mut among_renewals, if self.is_written => break,
                () = &mut due => break,
            }
        }
        let pause = tokio::time::sleep(pause(took));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                biased;
                event = self.watcher.changed() => if self.hear(&event) == Heard::Lost { return false },
                () = &mut pause => return true,
            }
        }
    }

    fn hear(&mut self, event: &zk::WatchedEvent) -> Heard {
        if event.event_type == zk::EventType::Session {
            return Heard::Lost;
        }
        let below = event.path.strip_prefix(&self.path).unwrap_or_default();
        let name = below.strip_prefix('/').unwrap_or_default();
        match event.event_type {
            // A lock may have others below it.
            _ if name.contains('/') => Heard::Other,
            zk::EventType::NodeDataChanged if is_contender(name) => {
                self.write(name, now());
                Heard::Written
            }
            zk::EventType::NodeDataChanged if !name.is_empty() => Heard::Other,
            zk::EventType::NodeDeleted if is_contender(name) => {
                self.leave(name, now());
                Heard::Changed
            }
            _ => Heard::Changed,
        }
    }

    fn write(&mut self, name: &str, now: SystemTime) {
        self.is_written = true;
        if let Some(number) = self.number {
            self.site.renewals.renewed(number, name, BootInstant::now());
        }
        let Moments { gone, said } = &mut self.moments;
        if !gone.is_empty() && said.len() < MOST_MOMENTS && !said.contains_key(name) {
            said.insert(name.to_owned(), now);
        }
    }

    fn leave(&mut self, name: &str, now: SystemTime) {
        if self.holders.contains(name) && self.moments.gone.len() < MOST_MOMENTS {
            self.moments.gone.insert(name.to_owned(), now);
        }
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.site.renewals.forget(number);
        }
    }
}
