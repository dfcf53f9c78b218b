//! The task that connects to an ensemble and fills a [`View`] with its queues.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::ensemble::{Closed, Ensemble, EnsembleError};
use lockkeeper_lock::zookeeper::{Onlooker, ZooKeeper};
use tokio::sync::watch;

use super::follow::Follow;
use super::link::Link;
use super::view::View;

use crate::lock_key::LockKey;
use crate::problem::Problem;
use crate::work_queue::WorkQueue;
use crate::zookeeper::ensemble_id::{self, Unidentified};
use crate::zookeeper::nodes::Tree;

/// How long one server may take to accept a connection. A Java server under load needs about a
/// second; the next server is tried after this.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long a server may take to say its tick.
const PATIENCE_FOR_TICK: Duration = Duration::from_millis(500);

/// Pause after every server was tried in vain.
const PAUSE: Duration = Duration::from_millis(500);

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

// === impl Mirror ===

impl Mirror {
    /// A mirror of the tree's locks, which announces what changes, and the task that fills it.
    pub fn new(zookeeper: ZooKeeper, tree: Tree, changes: Arc<WorkQueue>) -> (Self, MirrorTask) {
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

    pub(crate) fn view(&self) -> &View {
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

// === impl MirrorTask ===

impl MirrorTask {
    /// Connects, reads, follows, and does so again after every disconnection. Ends when it is dropped.
    pub async fn run(self) {
        let servers = self.zookeeper.connect_string().servers().len();
        // So that the replicas of the operator do not all begin at the same server.
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
        // Every replica writes this, without a lease: the lock by which replicas choose the leader is below the root, and
        // nobody leads before that is there. All replicas write the same, and create only what is missing. The first one
        // to create an ID gives it to all.
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
        let identified = match ensemble_id::identify(&connection, &self.tree, None).await {
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
        let keeping = ensemble_id::keep(Arc::clone(&connection), self.tree.clone(), identified);
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
