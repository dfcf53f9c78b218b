//! The nodes around the locks: made where they are missing, with the rights that they should have.
//!
//! ZooKeeper checks a node and its parent only, so a namespace needs no right above its lock roots.
//! The world has none anywhere.

use std::sync::Arc;

use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{Control, YieldRequest};
use zookeeper_client::{Acl, Acls, CreateMode, Error, Permission};

use crate::identity::Identity;
use crate::layout::{Layout, LockKey, Place};

/// Tries of a conditional write before giving up: each failure means that somebody else succeeded,
/// and a control node is written once per release.
const TRIES: usize = 8;

/// What could not be done to the tree.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TreeError {
    /// A node is there that belongs to somebody else.
    #[error(
        "there is no right to {path} for the identity in use: delete the node, or give the right with setAcl"
    )]
    Foreign {
        /// The node.
        path: String,
    },
    /// Anything else, mostly a lost connection.
    #[error("failed to look after {path}: {error}")]
    Failed {
        /// The node.
        path: String,
        /// Why.
        error: Error,
    },
}

/// Makes and repairs nodes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tree {
    layout: Layout,
    owners: Arc<[Identity]>,
    /// The namespace whose locks are looked after, where that is only one.
    namespace: Option<Arc<str>>,
}

/// What had to be done for a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Nodes that were missing.
    pub made: usize,
    /// Nodes that had other rights.
    pub rights: usize,
}

/// What came of a wish to remove a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Nothing of it is left.
    Done,
    /// Somebody stands in its queue.
    InUse,
}

// === impl Tree ===

impl Tree {
    /// The tree of `layout`, looked after by `operator`.
    pub fn new(layout: Layout, operator: Identity) -> Self {
        Self {
            layout,
            owners: [operator].into(),
            namespace: None,
        }
    }

    /// The part of a namespace in an ensemble that is none of the operator's: everything there is done, and
    /// owned, by the identities that its locks name.
    pub fn of_namespace(layout: Layout, namespace: &str, owners: &[Identity]) -> Self {
        Self {
            layout,
            owners: owners.into(),
            namespace: Some(namespace.into()),
        }
    }

    /// What is looked after, with everything below it.
    pub fn place(&self) -> Place {
        match &self.namespace {
            None => Place::Locks,
            Some(namespace) => Place::Namespace(Arc::clone(namespace)),
        }
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Makes the upper nodes, down to the parents of the namespaces. What is above the root is made if
    /// it is missing, and left as it is otherwise.
    ///
    /// # Errors
    /// When a node is somebody else's, or the connection is lost.
    pub async fn ensure(&self, connection: &Onlooker) -> Result<(), TreeError> {
        let own = self.own();
        let root = self.layout.root();
        for (at, _) in root.match_indices('/').skip(1) {
            let above = &root[..at];
            match connection.check_stat(above).await {
                Ok(None) => drop(self.make(connection, above, &own, &[]).await?),
                // Newer servers want the right to read for that.
                Ok(Some(_)) | Err(Error::NoAuth) => {}
                Err(error) => return Err(failed(above, error)),
            }
        }
        for path in [root, &self.layout.locks(), &self.layout.controls()] {
            match self.ensure_node(connection, path, &own, &[]).await {
                // Somebody may have made them for several namespaces, with the right to create below.
                Err(TreeError::Foreign { .. }) if self.namespace.is_some() => {}
                done => drop(done?),
            }
        }
        Ok(())
    }

    /// Makes a lock's root and control node, for the identities of its namespace: the one in use, and
    /// the one before it, whose pods still run.
    ///
    /// # Errors
    /// When a node is somebody else's, or the connection is lost.
    pub async fn ensure_lock(
        &self,
        connection: &Onlooker,
        key: &LockKey,
        identities: &[Identity],
    ) -> Result<Repairs, TreeError> {
        let own = self.own();
        let with = |rights: Permission| {
            let namespace = identities
                .iter()
                .map(|identity| Acl::new(rights, identity.auth_id()));
            own.iter().cloned().chain(namespace).collect::<Vec<_>>()
        };
        let root = with(Permission::READ | Permission::CREATE | Permission::DELETE);
        let control = with(Permission::READ | Permission::WRITE);
        let parent = |path: &str| path[..path.rfind('/').unwrap_or(0)].to_owned();
        let (root_path, control_path) = (self.layout.lock(key), self.layout.control(key));
        let empty = Control::default().to_data();
        let mut repairs = Repairs::default();
        for (path, acls, data) in [
            (root_path, &root, &[][..]),
            (control_path, &control, empty.as_slice()),
        ] {
            let done = match self.ensure_node(connection, &path, acls, data).await {
                Err(TreeError::Failed {
                    error: Error::NoNode, ..
                }) => {
                    self.ensure_node(connection, &parent(&path), &own, &[]).await?;
                    self.ensure_node(connection, &path, acls, data).await?
                }
                done => done?,
            };
            repairs.made += done.made;
            repairs.rights += done.rights;
        }
        Ok(repairs)
    }

    /// Removes a lock's root and control node, unless somebody stands in the queue. What is somebody else's
    /// in an ensemble that is none of the operator's stays: it could not be provided either, and no object
    /// waits for it.
    ///
    /// # Errors
    /// When a node is somebody else's in the operator's ensemble, or the connection is lost.
    pub async fn remove_lock(&self, connection: &Onlooker, key: &LockKey) -> Result<Removal, TreeError> {
        for path in [self.layout.lock(key), self.layout.control(key)] {
            match connection.delete(&path, None).await {
                Ok(()) | Err(Error::NoNode) => {}
                Err(Error::NoAuth) if self.namespace.is_some() => {}
                Err(Error::NotEmpty) => return Ok(Removal::InUse),
                Err(error) => return Err(failed(&path, error)),
            }
        }
        // The last lock of a namespace leaves nothing behind.
        for parent in [self.layout.locks(), self.layout.controls()] {
            let path = format!("{parent}/{}", key.namespace);
            match connection.delete(&path, None).await {
                Ok(()) | Err(Error::NoNode | Error::NotEmpty) => {}
                Err(Error::NoAuth) if self.namespace.is_some() => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Ok(Removal::Done)
    }

    /// Asks contenders to step down, unless exactly that was asked already. Keeps whatever else the
    /// control node holds. True when the request is new.
    ///
    /// # Errors
    /// When the control node is missing or somebody else's, or the connection is lost.
    pub async fn request_yield(
        &self,
        connection: &Onlooker,
        key: &LockKey,
        request: &YieldRequest,
    ) -> Result<bool, TreeError> {
        let path = self.layout.control(key);
        for _ in 0..TRIES {
            let (data, stat) = connection
                .get_data(&path)
                .await
                .map_err(|error| failed(&path, error))?;
            let mut control = Control::parse(&data);
            if request.contenders.iter().all(|contender| control.asks(contender)) {
                return Ok(false);
            }
            control.v = 1;
            control.yield_request = Some(request.clone());
            match connection
                .set_data(&path, &control.to_data(), Some(stat.version))
                .await
            {
                Ok(_) => return Ok(true),
                // A release came between.
                Err(Error::BadVersion) => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(failed(&path, Error::BadVersion))
    }

    fn own(&self) -> Vec<Acl> {
        let owners = self.owners.iter();
        owners
            .map(|owner| Acl::new(Permission::ALL, owner.auth_id()))
            .collect()
    }

    async fn ensure_node(
        &self,
        connection: &Onlooker,
        path: &str,
        acls: &[Acl],
        data: &[u8],
    ) -> Result<Repairs, TreeError> {
        match connection.get_acl(path).await {
            Ok((found, _)) if is_same(&found, acls) => Ok(Repairs::default()),
            Ok(_) => {
                match connection.set_acl(path, acls, None).await {
                    Ok(_) => Ok(Repairs { made: 0, rights: 1 }),
                    // Deleted in between.
                    Err(Error::NoNode) => self.make(connection, path, acls, data).await,
                    Err(error) => Err(failed(path, error)),
                }
            }
            Err(Error::NoNode) => self.make(connection, path, acls, data).await,
            Err(error) => Err(failed(path, error)),
        }
    }

    async fn make(
        &self,
        connection: &Onlooker,
        path: &str,
        acls: &[Acl],
        data: &[u8],
    ) -> Result<Repairs, TreeError> {
        let options = CreateMode::Persistent.with_acls(Acls::new(acls));
        match connection.create(path, data, &options).await {
            Ok(_) => Ok(Repairs { made: 1, rights: 0 }),
            // Another replica was faster, with the same rights.
            Err(Error::NodeExists) => Ok(Repairs::default()),
            Err(error) => Err(failed(path, error)),
        }
    }
}

fn is_same(found: &[Acl], wanted: &[Acl]) -> bool {
    found.len() == wanted.len() && wanted.iter().all(|acl| found.contains(acl))
}

fn failed(path: &str, error: Error) -> TreeError {
    let path = path.to_owned();
    match error {
        Error::NoAuth => TreeError::Foreign { path },
        error => TreeError::Failed { path, error },
    }
}
