//! The queues of all locks, as they stand in ZooKeeper, in memory.
//!
//! One session, one persistent recursive watch, and a full read after every connection: what happened
//! between two connections is told to nobody. Each connection is a client of its own, so nothing of an
//! old one can be taken for something of a new one.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::ensemble::{Closed, Ensemble, EnsembleError};
use lockkeeper_lock::zookeeper::{Onlooker, ZooKeeper};
use tokio::sync::watch;

use crate::changes::Changes;
use crate::error::Problem;
use crate::layout::LockKey;
use crate::picture::{Picture, Queue};
use crate::tree::Tree;

mod follow;

use follow::Follow;

/// How long one server may take to accept a connection. A Java server under load needs about a
/// second; the next server is tried after this.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long a server may take to say its tick.
const PATIENCE_FOR_TICK: Duration = Duration::from_millis(500);

/// Pause after every server was tried in vain.
const PAUSE: Duration = Duration::from_millis(500);

/// How the operator stands with the ensemble.
#[derive(Clone, Debug)]
pub enum Link {
    /// Not connected, and why; before the first attempt as well.
    Down(Problem),
    /// Connected; everything is being read, and what is known may be old.
    Reading(Arc<Onlooker>),
    /// Connected, and the picture follows.
    Up(Arc<Onlooker>),
}

/// A look at the queues, cheap to clone.
#[derive(Clone, Debug)]
pub struct Mirror {
    shared: Arc<Shared>,
    link: watch::Receiver<Link>,
}

/// Fills a [`Mirror`]; to be run as a task.
#[derive(Debug)]
pub struct MirrorTask {
    zookeeper: ZooKeeper,
    tree: Tree,
    shared: Arc<Shared>,
    link: watch::Sender<Link>,
}

#[derive(Debug)]
struct Shared {
    picture: RwLock<Picture>,
    changes: Arc<Changes>,
    tick_time: Mutex<Option<Duration>>,
}

// === impl Link ===

impl Link {
    /// The connection, if the picture is fresh.
    pub fn up(&self) -> Option<&Arc<Onlooker>> {
        match self {
            Self::Up(connection) => Some(connection),
            Self::Down(_) | Self::Reading(_) => None,
        }
    }
}

// === impl Mirror ===

impl Mirror {
    /// A mirror of the tree's locks, which announces what changes, and the task that fills it.
    pub fn new(zookeeper: ZooKeeper, tree: Tree, changes: Arc<Changes>) -> (Self, MirrorTask) {
        let shared = Arc::new(Shared {
            picture: RwLock::default(),
            changes,
            tick_time: Mutex::default(),
        });
        let nothing_yet = Problem::new(Reason::Disconnected, "not connected yet");
        let (sender, link) = watch::channel(Link::Down(nothing_yet));
        let task = MirrorTask {
            zookeeper,
            tree,
            shared: Arc::clone(&shared),
            link: sender,
        };
        (Self { shared, link }, task)
    }

    /// How the operator stands with the ensemble now.
    pub fn link(&self) -> Link {
        self.link.borrow().clone()
    }

    /// To wait for changes of [`Mirror::link`].
    pub fn watch_link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    /// One lock as it was seen last; an empty queue when nothing of it is there.
    pub fn queue(&self, key: &LockKey) -> Queue {
        self.shared.read().queue(key).cloned().unwrap_or_default()
    }

    /// The locks of a namespace whose roots are there.
    pub fn locks_of(&self, namespace: &str) -> Vec<LockKey> {
        let picture = self.shared.read();
        let keys = picture.keys().filter(|key| &*key.namespace == namespace);
        keys.cloned().collect()
    }

    /// The ensemble's `tickTime` as it told it last, if it ever did.
    pub fn tick_time(&self) -> Option<Duration> {
        *self
            .shared
            .tick_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How many lock roots and contenders there are.
    pub fn size(&self) -> (usize, usize) {
        let picture = self.shared.read();
        (picture.keys().count(), picture.contenders())
    }

    /// Waits for changes, and takes them: each lock once, however often it changed. There is one
    /// taker, also where mirrors share them.
    pub async fn changes(&self) -> Vec<LockKey> {
        self.shared.changes.take().await
    }
}

// === impl Shared ===

impl Shared {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Picture> {
        self.picture.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts everything that was read anew in the place of what was known.
    fn replace(&self, new: Picture) {
        let mut picture = self.picture.write().unwrap_or_else(PoisonError::into_inner);
        let differences = new.differences(&picture);
        *picture = new;
        drop(picture);
        self.changes.announce(differences);
    }

    fn edit(&self, key: &LockKey, edit: impl FnOnce(&mut Picture) -> bool) {
        let is_news = edit(&mut self.picture.write().unwrap_or_else(PoisonError::into_inner));
        if is_news {
            self.changes.announce([key.clone()]);
        }
    }
}

// === impl MirrorTask ===

impl MirrorTask {
    /// Connects, reads, follows, and does so again after every disconnection. Ends when it is dropped.
    pub async fn run(self) {
        let servers = self.zookeeper.connect_string().servers().len();
        // The replicas of the operator do not all begin at the same server.
        let mut next = std::process::id() as usize % servers;
        let mut failures = 0;
        loop {
            let index = next % servers;
            next = index + 1;
            let mut problem = match self.zookeeper.onlooker(index, PATIENCE).await {
                Ok(connection) => {
                    failures = 0;
                    self.follow(Arc::new(connection)).await
                }
                Err(error) => problem(&error),
            };
            failures += 1;
            if failures >= servers
                && let Some(objection) = self.zookeeper.objection().await
            {
                problem = self::problem(&objection);
            }
            let connect = self.zookeeper.connect_string();
            tracing::warn!(%connect, reason = problem.message, "No connection to the ensemble");
            self.link.send_replace(Link::Down(problem));
            if failures >= servers {
                failures = 0;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Serves one connection to its end, and says why it ended.
    async fn follow(&self, connection: Arc<Onlooker>) -> Problem {
        self.link.send_replace(Link::Reading(Arc::clone(&connection)));
        let lost = |message: String| Problem::new(Reason::Disconnected, message);
        let (ensured, told) = tokio::join!(
            self.tree.ensure(&connection),
            self.zookeeper.tick_time(PATIENCE_FOR_TICK)
        );
        if let Err(error) = ensured {
            return match connection.closed().now_or_never() {
                Some(Closed::AuthFailed) => self::problem(&EnsembleError::AuthFailed),
                _ => lost(error.to_string()),
            };
        }
        self.tell_tick_time(told);
        let started = tokio::time::Instant::now();
        let mut follow = match Follow::start(Arc::clone(&connection), &self.tree).await {
            Ok(follow) => follow,
            Err(error) => return lost(error.to_string()),
        };
        loop {
            if let Some(picture) = follow.take_finished() {
                let (locks, contenders) = (picture.keys().count(), picture.contenders());
                self.shared.replace(picture);
                self.link.send_replace(Link::Up(Arc::clone(&connection)));
                tracing::info!(locks, contenders, took = ?started.elapsed(), "Read all queues");
            }
            if let Err(reason) = follow.step(&self.shared).await {
                return lost(reason);
            }
        }
    }

    fn tell_tick_time(&self, told: Option<Duration>) {
        let mut known = self
            .shared
            .tick_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.is_none() && known.is_none() {
            let connect = self.zookeeper.connect_string();
            tracing::info!(%connect, "The ensemble does not tell its tickTime (four-letter word conf)");
        }
        *known = told.or(*known);
    }
}

/// What an attempt came to, for a condition.
fn problem(error: &EnsembleError) -> Problem {
    let reason = match error {
        EnsembleError::AuthFailed => Reason::CredentialsRefused,
        EnsembleError::Untrusted { .. } => Reason::TlsFailed,
        _ => Reason::Disconnected,
    };
    Problem::new(reason, error.to_string())
}
