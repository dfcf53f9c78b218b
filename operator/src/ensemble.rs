//! One ensemble, as the operator knows it.

use std::sync::Arc;

use lockkeeper_lock::zookeeper::{ConnectString, ZooKeeper};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::changes::Changes;
use crate::mirror::Mirror;
use crate::reach::{self, Reach};
use crate::tree::Tree;

/// An ensemble: its queues, its nodes, and how the operator stands with it.
#[derive(Debug)]
pub struct Ensemble {
    /// Where it is.
    pub connect: ConnectString,
    /// The queues.
    pub mirror: Mirror,
    /// How the operator stands with it.
    pub reach: watch::Receiver<Reach>,
    /// The nodes.
    pub tree: Tree,
    /// Whether it is the operator's own, whose locks are open to the identities of their namespaces.
    pub is_own: bool,
}

impl Ensemble {
    /// An ensemble that `tasks` follow from now on.
    pub fn follow(
        zookeeper: ZooKeeper,
        tree: Tree,
        is_own: bool,
        changes: Arc<Changes>,
        tasks: &mut JoinSet<()>,
    ) -> Arc<Self> {
        let connect = zookeeper.connect_string().clone();
        let (mirror, mirror_task) = Mirror::new(zookeeper, tree.clone(), changes);
        let (reach, reach_seen) = watch::channel(Reach::Unsure);
        tasks.spawn(mirror_task.run());
        tasks.spawn(reach::follow(mirror.clone(), reach));
        Arc::new(Self {
            connect,
            mirror,
            reach: reach_seen,
            tree,
            is_own,
        })
    }
}
