//! The queues of all locks, as they stand in ZooKeeper, in memory.
//!
//! One session, one persistent recursive watch, and a full read after every connection: what happened
//! between two connections is told to nobody. Each connection is a client of its own, so nothing of an
//! old one can be taken for something of a new one.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::ensemble::{Closed, Ensemble, EnsembleError};
use lockkeeper_lock::zookeeper::{Onlooker, ZooKeeper};
use tokio::sync::watch;
use uuid::Uuid;

use crate::changes::Changes;
use crate::ensemble::id::{self, Unidentified};
use crate::error::Problem;
use crate::layout::LockKey;
use crate::picture::{Picture, Queue};
use crate::tree::Tree;

mod backlog;
mod churn;
mod follow;
mod reads;

use follow::Follow;
pub(crate) use reads::{LONGEST_LIST, PATIENCE as PATIENCE_FOR_LIST, shown};

/// How long one server may take to accept a connection. A Java server under load needs about a
/// second; the next server is tried after this.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long a server may take to say its tick.
const PATIENCE_FOR_TICK: Duration = Duration::from_millis(500);

/// Pause after every server was tried in vain.
const PAUSE: Duration = Duration::from_millis(500);

/// How the operator stands with the ensemble; what it asks there goes by `C`.
#[derive(Clone, Debug)]
pub enum Link<C = Arc<Onlooker>> {
    /// Not connected, and why; before the first attempt as well.
    Down(Problem),
    /// Connected; everything is being read, and what is known may be old.
    Reading,
    /// Connected, and the picture follows.
    Up(C),
}

/// The queues of an ensemble and what it says of itself, cheap to clone.
#[derive(Clone, Debug)]
pub struct View {
    shared: Arc<Shared>,
}

/// A [`View`] that a connection of this process fills.
#[derive(Clone, Debug)]
pub struct Mirror {
    view: View,
    link: watch::Receiver<Link>,
}

/// Fills a [`Mirror`]; to be run as a task.
#[derive(Debug)]
pub struct MirrorTask {
    zookeeper: ZooKeeper,
    tree: Tree,
    view: View,
    link: watch::Sender<Link>,
}

#[derive(Debug)]
struct Shared {
    picture: RwLock<Picture>,
    changes: Arc<Changes>,
    tick_time: Mutex<Option<Duration>>,
    id: Mutex<Option<Uuid>>,
}

// === impl Link ===

impl<C> Link<C> {
    /// The connection, if the picture is fresh.
    pub fn up(&self) -> Option<&C> {
        match self {
            Self::Up(connection) => Some(connection),
            Self::Down(_) | Self::Reading => None,
        }
    }
}

// === impl Mirror ===

impl Mirror {
    /// A mirror of the tree's locks, which announces what changes, and the task that fills it.
    pub fn new(zookeeper: ZooKeeper, tree: Tree, changes: Arc<Changes>) -> (Self, MirrorTask) {
        let view = View::new(changes);
        let nothing_yet = Problem::new(Reason::Disconnected, "not connected yet");
        let (sender, link) = watch::channel(Link::Down(nothing_yet));
        let task = MirrorTask {
            zookeeper,
            tree,
            view: view.clone(),
            link: sender,
        };
        (Self { view, link }, task)
    }

    /// What it fills.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// How the operator stands with the ensemble now.
    pub fn link(&self) -> Link {
        self.link.borrow().clone()
    }

    /// To wait for changes of [`Mirror::link`].
    pub fn watch_link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    /// Waits for changes, and takes them: each lock once, however often it changed. There is one
    /// taker, also where mirrors share them.
    pub async fn changes(&self) -> Vec<LockKey> {
        self.view.shared.changes.take().await
    }
}

impl Deref for Mirror {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

// === impl View ===

impl View {
    /// Knows nothing yet, and announces what changes.
    pub fn new(changes: Arc<Changes>) -> Self {
        let shared = Shared {
            picture: RwLock::default(),
            changes,
            tick_time: Mutex::default(),
            id: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
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

    /// Which ensemble it is, as of the last connection.
    pub fn id(&self) -> Option<Uuid> {
        *self.shared.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many lock roots and contenders there are.
    pub fn size(&self) -> (usize, usize) {
        let picture = self.shared.read();
        (picture.keys().count(), picture.contenders())
    }

    /// Which ensemble it is, and its tick if it tells it: as of a new connection.
    pub(crate) fn identify(&self, id: Uuid, tick_time: Option<Duration>) {
        *self.shared.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        let mut known = self
            .shared
            .tick_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = tick_time.or(*known);
    }

    /// Puts everything that was read anew in the place of what was known.
    pub(crate) fn replace(&self, new: Picture) {
        self.shared.replace(new);
    }

    /// Changes what is known of a lock; true from `edit` means that it is news.
    pub(crate) fn edit(&self, key: &LockKey, edit: impl FnOnce(&mut Picture) -> bool) {
        self.shared.edit(key, edit);
    }
}

// === impl Shared ===

impl Shared {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Picture> {
        self.picture.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts everything that was read anew in the place of what was known.
    fn replace(&self, new: Picture) {
        // There is one task that writes, and this is it: others may read meanwhile.
        let differences = new.differences(&self.read());
        let mut picture = self.picture.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *picture, new);
        drop(picture);
        drop(old);
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
        self.link.send_replace(Link::Reading);
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
        let identified = match id::identify(&connection, &self.tree, None).await {
            Ok(identified) => identified,
            Err(error @ (Unidentified::Malformed(_) | Unidentified::OtherCluster { .. })) => {
                return Problem::new(Reason::EnsembleChanged, error.to_string());
            }
            Err(error) => return lost(error.to_string()),
        };
        if told.or(self.view.tick_time()).is_none() {
            let connect = self.zookeeper.connect_string();
            tracing::info!(%connect, "The ensemble does not tell its tickTime (four-letter word conf)");
        }
        self.view.identify(identified.id, told);
        let keeping = id::keep(Arc::clone(&connection), self.tree.clone(), identified);
        let mut keeping = std::pin::pin!(keeping);
        let started = tokio::time::Instant::now();
        let mut follow = match Follow::start(Arc::clone(&connection), &self.tree).await {
            Ok(follow) => follow,
            Err(error) => return lost(error.to_string()),
        };
        loop {
            if let Some(picture) = follow.take_finished() {
                let (locks, contenders) = (picture.keys().count(), picture.contenders());
                self.view.replace(picture);
                self.link.send_replace(Link::Up(Arc::clone(&connection)));
                tracing::info!(locks, contenders, took = ?started.elapsed(), "Read all queues");
            }
            tokio::select! {
                biased;
                step = follow.step(&self.view.shared) => if let Err(reason) = step {
                    return lost(reason);
                },
                reason = &mut keeping => return lost(reason),
            }
        }
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
