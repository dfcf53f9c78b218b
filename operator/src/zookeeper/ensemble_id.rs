//! Which ensemble it is: a UUID in a node below the root, made once and never changed.
//!
//! It tells two ensembles apart, and two roots in one of them: a pod that queues in one of them knows nothing
//! of the queue in the other. The node is no secret, so the world may read it; pods have to.

use std::sync::Arc;

use lockkeeper_lock::zookeeper::Onlooker;
use uuid::Uuid;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Error, OneshotWatcher, Permission};

use crate::zookeeper::nodes::{Tree, TreeError};

/// Tries before giving up: each failure means that another replica made the node, or that it was deleted again.
const TRIES: usize = 8;

/// A known ID, and the watch on its node.
pub struct Identified {
    pub id: Uuid,
    changed: OneshotWatcher,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum Unidentified {
    /// The node holds something else.
    #[error(
        "{0} must hold the UUID of the ensemble: write back what status.ensemble.id of its locks says, or delete the \
         node if nothing is behind a lock there"
    )]
    Malformed(String),
    /// Everything below the root is another cluster's.
    #[error(
        "{root} belongs to the cluster {theirs}, and this is the cluster {ours} (the UIDs of kube-system): give each \
         cluster a root of its own, or delete {root}/cluster-id if {theirs} no longer exists"
    )]
    OtherCluster {
        root: String,
        /// The cluster that owns it.
        theirs: String,
        /// The cluster of this operator.
        ours: String,
    },
    /// It cannot be read or made.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// The node with the ID below a root.
pub fn node(root: &str) -> String {
    format!("{root}/ensemble-id")
}

/// Reads the ID below the root of `tree`. Where there is none makes it `known`, or a new one. Takes the root for the
/// cluster of `tree` before, if no cluster has it yet.
///
/// # Errors
/// When a node cannot be read or made, when it holds no ID, and when the root is another cluster's.
pub async fn identify(
    connection: &Onlooker,
    tree: &Tree,
    known: Option<Uuid>,
) -> Result<Identified, Unidentified> {
    claim(connection, tree).await?;
    let path = node(tree.layout().root());
    let failed = |error| Unidentified::Tree(TreeError::new(&path, error));
    for _ in 0..TRIES {
        match connection.get_and_watch_data(&path).await {
            Ok((data, _, changed)) => {
                let id = Uuid::try_parse_ascii(data.trim_ascii());
                let id = id.map_err(|_| Unidentified::Malformed(path.clone()))?;
                return Ok(Identified { id, changed });
            }
            Err(Error::NoNode) => {}
            Err(error) => return Err(failed(error)),
        }
        let mut acls = tree.own();
        acls.push(Acl::new(Permission::READ, AuthId::anyone()));
        let options = CreateMode::Persistent.with_acls(Acls::new(&acls));
        let id = known.unwrap_or_else(Uuid::new_v4);
        match connection
            .create(&path, id.to_string().as_bytes(), &options)
            .await
        {
            Ok(_) => tracing::warn!(path, %id, "Gave the ensemble an ID"),
            Err(Error::NodeExists) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(Error::NoNode))
}

/// Operators of two clusters below one root would elect one leader: the other cluster would have none, and pods with
/// the same namespace and lock would wait for each other. So the first cluster takes the root.
async fn claim(connection: &Onlooker, tree: &Tree) -> Result<(), Unidentified> {
    let Some(ours) = tree.cluster().await else {
        return Ok(());
    };
    let root = tree.layout().root();
    let path = format!("{root}/cluster-id");
    let failed = |error| Unidentified::Tree(TreeError::new(&path, error));
    for _ in 0..TRIES {
        match connection.get_data(&path).await {
            Ok((data, _)) if data == ours.as_bytes() => return Ok(()),
            Ok((data, _)) => {
                return Err(Unidentified::OtherCluster {
                    root: root.to_owned(),
                    theirs: String::from_utf8_lossy(&data).into_owned(),
                    ours: ours.to_string(),
                });
            }
            Err(Error::NoNode) => {}
            Err(error) => return Err(failed(error)),
        }
        let acls = tree.own();
        let options = CreateMode::Persistent.with_acls(Acls::new(&acls));
        match connection.create(&path, ours.as_bytes(), &options).await {
            // Read again: the first cluster counts.
            Ok(_) | Err(Error::NodeExists) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(Error::NoNode))
}

/// Keeps the node while the connection lasts: one session is one ensemble, so that a node that is deleted under it
/// comes back as it was. Ends when there is another ID, and says why.
pub(crate) async fn keep(connection: Arc<Onlooker>, tree: Tree, identified: Identified) -> String {
    let Identified { id, mut changed } = identified;
    loop {
        changed.changed().await;
        match identify(&connection, &tree, Some(id)).await {
            Ok(again) if again.id == id => changed = again.changed,
            Ok(again) => return format!("the ID of the ensemble was changed from {id} to {}", again.id),
            Err(error) => return error.to_string(),
        }
    }
}
