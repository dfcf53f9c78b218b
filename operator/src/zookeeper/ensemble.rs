//! One ensemble, as the operator knows it.

use std::path::PathBuf;
use std::sync::Arc;

use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::zookeeper::{ConnectString, ZooKeeper};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::problem::Problem;
use crate::work_queue::WorkQueue;
use crate::zookeeper::client::Way;
use crate::zookeeper::direct::Direct;
use crate::zookeeper::nodes::Tree;
use crate::zookeeper::queues::{Link, Mirror, View};
use crate::zookeeper::reachability::{self, Reachability};
use crate::zookeeper::sandbox::parent::Follow;
use crate::zookeeper::sandbox::wire::Hello;

/// An ensemble: its queues, and how the operator stands with it.
#[derive(Debug)]
pub struct Ensemble {
    pub(crate) connect: ConnectString,
    /// The node below which everything is.
    pub(crate) root: String,
    pub view: View,
    /// How the operator stands with it, and the way there.
    pub reachability: watch::Receiver<Reachability>,
    /// Whether it is the operator's own, whose locks are open to the identities of their namespaces.
    pub(crate) is_own: bool,
}

impl Ensemble {
    /// The operator's own ensemble, which `tasks` follow from now on, and how the connection stands.
    pub(crate) fn own(
        zookeeper: ZooKeeper,
        tree: Tree,
        changes: Arc<WorkQueue>,
        tasks: &mut JoinSet<()>,
    ) -> (Arc<Self>, watch::Receiver<Link>) {
        let (connect, root) = (
            zookeeper.connect_string().clone(),
            tree.layout().root().to_owned(),
        );
        let (mirror, mirror_task) = Mirror::new(zookeeper, tree.clone(), changes);
        let (reachability, reachability_seen) = watch::channel(Reachability::Unsure);
        let view = mirror.view().clone();
        let way = {
            let view = view.clone();
            move |connection| {
                let (tree, view) = (tree.clone(), view.clone());
                Way::Direct(Direct {
                    connection,
                    tree,
                    view,
                })
            }
        };
        tasks.spawn(mirror_task.run());
        let link = mirror.watch_link();
        tasks.spawn(reachability::follow(link.clone(), way, reachability));
        let own = Self {
            connect,
            root,
            view,
            reachability: reachability_seen,
            is_own: true,
        };
        (Arc::new(own), link)
    }

    /// An ensemble that locks name, which processes of `program` follow from now on.
    pub fn apart(
        connect: ConnectString,
        program: PathBuf,
        hello: Hello,
        changes: Arc<WorkQueue>,
        tasks: &mut JoinSet<()>,
    ) -> Arc<Self> {
        let root = hello.root.clone();
        let (reachability, reachability_seen) = watch::channel(Reachability::Unsure);
        let view = View::new(changes);
        let nothing_yet = Problem::new(Reason::Disconnected, "not connected yet");
        let (link, link_seen) = watch::channel(Link::Down(nothing_yet));
        let follow = Follow {
            program,
            hello,
            view: view.clone(),
            link,
        };
        tasks.spawn(follow.run());
        tasks.spawn(reachability::follow(link_seen, Way::Apart, reachability));
        Arc::new(Self {
            connect,
            root,
            view,
            reachability: reachability_seen,
            is_own: false,
        })
    }
}

/// Follows whether the operator may maintain the nodes in the ensemble; to be run as a task. It may not if they
/// belong to another cluster, or if the node with the ID is invalid.
pub(crate) async fn judge(mut link: watch::Receiver<Link>, is_acceptable: watch::Sender<bool>) {
    loop {
        match &*link.borrow_and_update() {
            Link::Down(problem) if problem.reason == Reason::EnsembleChanged => {
                is_acceptable.send_replace(false);
            }
            Link::Up(_) => {
                is_acceptable.send_replace(true);
            }
            // Not known now.
            Link::Down(_) | Link::Reading => {}
        }
        if link.changed().await.is_err() {
            return;
        }
    }
}
