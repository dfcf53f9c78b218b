//! The moments at which the leader made and deleted each contender, seen in a session with the leader itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use lockkeeper_judge::checker::NodeLife;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::Ensemble;
use lockkeeper_testbed::ensemble::{SUPER, block_on, connector};
use lockkeeper_testbed::process::wait_for;
use tokio::sync::oneshot;
use zookeeper_client::{Acls, AddWatchMode, CreateMode, EventType, SessionState};

/// For an election on a busy machine.
const LEADER_BOUND: Duration = Duration::from_secs(60);

/// A session with the leader itself that watches a lock root. Drop ends it.
#[derive(Debug)]
pub struct DeletionWatch {
    seen: Arc<Mutex<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

#[derive(Debug, Default)]
struct Seen {
    lives: BTreeMap<String, NodeLife>,
    interrupted: Option<BootInstant>,
    /// The newest change of a node's data: its transaction, and the node.
    changed: Option<(i64, String)>,
    /// The tokens of contenders whose own client has released them.
    released: BTreeSet<i64>,
}

impl DeletionWatch {
    /// Watches all nodes below `path` at the present leader; makes `path` if it is missing. For
    /// [`DeletionWatch::was_released`] it has to be above the lock's control node, too.
    ///
    /// # Errors
    /// When there is no leader for a minute, or it grants no session.
    pub fn begin(ensemble: &Ensemble, path: &str) -> anyhow::Result<Self> {
        let leader = wait_for(LEADER_BOUND, || ensemble.leader()).context("there is no leader to watch")?;
        let address = ensemble.address(leader).to_string();
        let host = ensemble.observer().clone();
        let path = path.to_owned();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new().name("deletions".to_owned()).spawn({
            let seen = Arc::clone(&seen);
            move || block_on(&host, || watch(&address, &path, &seen, ready, stopped))?
        })?;
        let mut watch = Self {
            seen,
            stop: Some(stop),
            thread: Some(thread),
        };
        match is_ready.recv() {
            Ok(()) => Ok(watch),
            Err(_) => Err(watch
                .end()
                .err()
                .unwrap_or_else(|| anyhow!("the watch ended before it began"))),
        }
    }

    /// All children seen so far, in the order of their names.
    pub fn lives(&self) -> Vec<NodeLife> {
        lock(&self.seen).lives.values().cloned().collect()
    }

    /// The children whose deletion by that leader was seen. Events after an interruption are not its view any more.
    pub fn deletions(&self) -> Vec<NodeLife> {
        let seen = lock(&self.seen);
        let is_seen = |life: &&NodeLife| {
            life.deleted
                .is_some_and(|at| seen.interrupted.is_none_or(|until| at < until))
        };
        seen.lives.values().filter(is_seen).cloned().collect()
    }

    /// Waits until the child with this token has been deleted, and returns when.
    pub fn wait_for_deletion(&self, token: i64, bound: Duration) -> Option<BootInstant> {
        wait_for(bound, || {
            lock(&self.seen)
                .lives
                .values()
                .find(|life| life.token == token)
                .and_then(|life| life.deleted)
        })
    }

    /// Whether the child with this token was released by its own client, which records that in the control
    /// node with the transaction that deletes the child. False if it was deleted in any other way: its session
    /// ended, the next contender took its place, or a user deleted it. False also on servers before 3.9, which do not tell
    /// the transactions of events.
    pub fn was_released(&self, token: i64) -> bool {
        lock(&self.seen).released.contains(&token)
    }

    /// When the session with that leader was first interrupted, if it was. The server may no longer lead, and
    /// later events are not the leader's view: watch anew.
    pub fn interrupted(&self) -> Option<BootInstant> {
        lock(&self.seen).interrupted
    }

    fn end(&mut self) -> anyhow::Result<()> {
        // Sending fails if the thread has ended; then its result says why.
        self.stop.take().map(|stop| stop.send(()));
        match self.thread.take() {
            Some(thread) => thread
                .join()
                .map_err(|_| anyhow!("the watching thread panicked"))?,
            None => Ok(()),
        }
    }
}

impl Drop for DeletionWatch {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("The watch of deletions failed: {error:#}");
        }
    }
}

async fn watch(
    address: &str,
    path: &str,
    seen: &Mutex<Seen>,
    ready: mpsc::Sender<()>,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let client = connector()
        .with_auth("digest", SUPER.as_bytes())
        .connect(address)
        .await
        .with_context(|| format!("cannot connect to the leader at {address}"))?;
    client
        .mkdir(path, &CreateMode::Persistent.with_acls(Acls::anyone_all()))
        .await?;
    let mut watcher = client.watch(path, AddWatchMode::PersistentRecursive).await?;
    let mut names = client.list_children(path).await?;
    while let Some(name) = names.pop() {
        let node = format!("{path}/{name}");
        match client.list_children(&node).await {
            Ok(below) => names.extend(below.iter().map(|child| format!("{name}/{child}"))),
            // If it is gone meanwhile, the watch has seen it.
            Err(zookeeper_client::Error::NoNode) => continue,
            Err(error) => return Err(error.into()),
        }
        if let Some(stat) = client.check_stat(&node).await? {
            let life = NodeLife {
                name: name.clone(),
                token: stat.czxid,
                created: None,
                deleted: None,
            };
            lock(seen).lives.insert(name, life);
        }
    }
    // Sending fails when the harness has given up; then `stopped` ends this, too.
    let _ = ready.send(());
    loop {
        let event = tokio::select! {
            _ = &mut stopped => return Ok(()),
            event = watcher.changed() => event,
        };
        let now = BootInstant::now();
        // Servers tell the transaction of an event from 3.9.0 on (ZOOKEEPER-4655).
        let token = match event.event_type {
            EventType::NodeCreated if event.zxid <= 0 => client
                .check_stat(&event.path)
                .await?
                .map_or(event.zxid, |stat| stat.czxid),
            _ => event.zxid,
        };
        let mut guard = lock(seen);
        let seen = &mut *guard;
        let name = event
            .path
            .strip_prefix(path)
            .and_then(|rest| rest.strip_prefix('/'));
        match (event.event_type, name) {
            (EventType::Session, _) if event.session_state != SessionState::SyncConnected => {
                seen.interrupted.get_or_insert(now);
                if event.session_state.is_terminated() {
                    return Ok(());
                }
            }
            (EventType::NodeCreated, Some(name)) => {
                let life = NodeLife {
                    name: name.to_owned(),
                    token,
                    created: Some(now),
                    deleted: None,
                };
                seen.lives.insert(name.to_owned(), life);
            }
            // A transaction's events come in the order of its operations: the record of a release comes first
            // (`lock/src/task/requests/delete.rs`).
            (EventType::NodeDataChanged, Some(name)) if event.zxid > 0 => {
                seen.changed = Some((event.zxid, name.to_owned()));
            }
            (EventType::NodeDeleted, Some(name)) => {
                // A contender that takes the place of another one writes to itself, beside that one.
                let is_released = seen
                    .changed
                    .as_ref()
                    .is_some_and(|(zxid, changed)| *zxid == event.zxid && parent(changed) != parent(name));
                if let Some(life) = seen.lives.get_mut(name) {
                    life.deleted = Some(now);
                    let token = life.token;
                    if is_released {
                        seen.released.insert(token);
                    }
                }
            }
            _ => {}
        }
    }
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
