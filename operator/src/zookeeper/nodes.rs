//! The nodes around the locks: created where they are missing, with the rights that they should have.
//!
//! ZooKeeper checks a node and its parent only, so a namespace needs no right above its lock roots.
//! The world has none anywhere.

use std::sync::Arc;

use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{Agreement, Control};
use zookeeper_client::{Acl, Acls, CreateMode, Error, MultiWriteError, Permission};

use crate::identity::Identity;
use crate::kubernetes::cluster_id;
use crate::lock_key::LockKey;
use crate::zookeeper::paths::{Layout, Place};

mod control;
mod dead;
mod outcome;
mod sweep;

pub use outcome::{Agreed, Ending, Removal, Repairs, TreeError};
use outcome::{LONGEST_REQUEST, failed};

/// Tries of a conditional write before giving up: each failure means that another client succeeded,
/// and a control node is written once per release.
const TRIES: usize = 8;

/// Makes and repairs nodes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tree {
    layout: Layout,
    owners: Arc<[Identity]>,
    /// The namespace whose locks it maintains, if it is only one.
    namespace: Option<Arc<str>>,
    /// The cluster to which everything below the root belongs, where it is to be one.
    cluster: Option<cluster_id::Uid>,
}

// === impl Tree ===

impl Tree {
    /// The tree of `layout`, maintained by `operator`.
    pub fn new(layout: Layout, operator: Identity) -> Self {
        Self {
            layout,
            owners: [operator].into(),
            namespace: None,
            cluster: None,
        }
    }

    /// The same, as that of one cluster alone.
    pub fn of_cluster(self, uid: cluster_id::Uid) -> Self {
        let cluster = Some(uid);
        Self { cluster, ..self }
    }

    /// The part of a namespace in an ensemble that is not the operator's: the identities that its locks name own all
    /// nodes and do all writes there.
    pub fn of_namespace(layout: Layout, namespace: &str, owners: &[Identity]) -> Self {
        Self {
            layout,
            owners: owners.into(),
            namespace: Some(namespace.into()),
            cluster: None,
        }
    }

    /// The top of what it maintains.
    pub(crate) fn place(&self) -> Place {
        match &self.namespace {
            None => Place::Locks,
            Some(namespace) => Place::Namespace(Arc::clone(namespace)),
        }
    }

    /// The cluster that owns the tree, if there is to be one: waits until it is known.
    pub(crate) async fn cluster(&self) -> Option<Arc<str>> {
        let mut uid = self.cluster.clone()?;
        let known = uid.wait_for(Option::is_some).await;
        known.ok().and_then(|uid| uid.clone())
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Makes the upper nodes, down to the parents of the namespaces. Nodes above the root are created if they are
    /// missing, and left as they are otherwise.
    ///
    /// # Errors
    /// When a node belongs to another identity, or the connection is lost.
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
                // An administrator may have created them for several namespaces, with the right to create below.
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
    /// When a node belongs to another identity, or the connection is lost.
    pub async fn ensure_lock(
        &self,
        connection: &Onlooker,
        key: &LockKey,
        identities: &[Identity],
    ) -> Result<Repairs, TreeError> {
        let own = self.own();
        let root = self.of_root(identities);
        let control = self.with(identities, Permission::READ | Permission::WRITE);
        let parent = |path: &str| path[..path.rfind('/').unwrap_or(0)].to_owned();
        let (root_path, control_path) = (self.layout.lock(key), self.layout.control(key));
        let empty = Control::new().to_data();
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

    /// Writes what the contenders of a lock have to agree on into its root: at once where nothing is written, else
    /// only while the queue is empty. Then the root is created again in one transaction, which fails where it
    /// has children. The root and its rights are there already ([`Tree::ensure_lock`]).
    ///
    /// # Errors
    /// When a node belongs to another identity, or the connection is lost.
    pub async fn agree(
        &self,
        connection: &Onlooker,
        key: &LockKey,
        identities: &[Identity],
        agreement: Agreement,
    ) -> Result<Agreed, TreeError> {
        let path = self.layout.lock(key);
        let data = agreement.to_data();
        for _ in 0..TRIES {
            let (found, stat) = connection
                .get_data(&path)
                .await
                .map_err(|error| failed(&path, error))?;
            let before = Agreement::parse(&found);
            let written = match before {
                Ok(Some(before)) if before == agreement => return Ok(Agreed::Done),
                Ok(None) => {
                    let set = connection.set_data(&path, &data, Some(stat.version));
                    set.await.map(drop)
                }
                _ => {
                    let acls = self.of_root(identities);
                    replace(connection, &path, &acls, &data).await
                }
            };
            match written {
                Ok(()) => return Ok(Agreed::Done),
                Err(Error::NotEmpty) => {
                    let before = before.ok().flatten();
                    return Ok(Agreed::Pending { before });
                }
                // Another replica was faster.
                Err(Error::BadVersion) => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(failed(&path, Error::BadVersion))
    }

    /// Removes a lock's root and control node, unless a contender is in the queue. Children of the root that are no places
    /// in the queue are removed too, as far as possible. In an ensemble that is not the operator's, nodes of other
    /// identities stay: the lock could not be provided there either, and no object waits for them.
    ///
    /// # Errors
    /// When a node belongs to another identity in the operator's ensemble, or the connection is lost.
    pub async fn remove_lock(&self, connection: &Onlooker, key: &LockKey) -> Result<Removal, TreeError> {
        let (root, control) = (self.layout.lock(key), self.layout.control(key));
        match self.remove(connection, &root).await? {
            Removal::Done => {}
            _ => match sweep::sweep(connection, &root).await {
                Ok(Removal::Done) if self.remove(connection, &root).await? == Removal::Done => {}
                // A contender came in between.
                Ok(Removal::Done) => return Ok(Removal::Goes),
                Err(error @ TreeError::Foreign { .. }) if self.namespace.is_some() => {
                    return Ok(Removal::Left(error.to_string()));
                }
                obstacle => return obstacle,
            },
        }
        let removed = self.remove(connection, &control).await?;
        if removed != Removal::Done {
            return Ok(removed);
        }
        // With the last lock of a namespace its parents are removed, too.
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

    /// Removes a node of a lock that has no children.
    async fn remove(&self, connection: &Onlooker, path: &str) -> Result<Removal, TreeError> {
        match connection.delete(path, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(Removal::Done),
            Err(Error::NoAuth) if self.namespace.is_some() => Ok(Removal::Done),
            Err(Error::NotEmpty) => Ok(Removal::Left(format!("{path} has children"))),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// The rights to a lock root. Pods create their contenders below it. They read the agreement and cannot change
    /// it.
    fn of_root(&self, identities: &[Identity]) -> Vec<Acl> {
        self.with(
            identities,
            Permission::READ | Permission::CREATE | Permission::DELETE,
        )
    }

    /// All rights for our own identities, and these for those of a namespace.
    fn with(&self, identities: &[Identity], rights: Permission) -> Vec<Acl> {
        let namespace = identities
            .iter()
            .map(|identity| Acl::new(rights, identity.auth_id()));
        self.own().into_iter().chain(namespace).collect()
    }

    /// All rights for the identities that maintain the tree.
    pub(crate) fn own(&self) -> Vec<Acl> {
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
                check_length(path, acls, data)?;
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
        check_length(path, acls, data)?;
        let options = CreateMode::Persistent.with_acls(Acls::new(acls));
        match connection.create(path, data, &options).await {
            Ok(_) => Ok(Repairs { made: 1, rights: 0 }),
            // Another replica was faster, with the same rights.
            Err(Error::NodeExists) => Ok(Repairs::default()),
            Err(error) => Err(failed(path, error)),
        }
    }
}

/// Puts a new node in the place of one that has no children.
async fn replace(connection: &Onlooker, path: &str, acls: &[Acl], data: &[u8]) -> Result<(), Error> {
    let options = CreateMode::Persistent.with_acls(Acls::new(acls));
    let mut writer = connection.new_multi_writer();
    writer.add_delete(path, None)?;
    writer.add_create(path, data, &options)?;
    match writer.commit().await {
        Ok(_) => Ok(()),
        Err(MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source }) => {
            Err(source)
        }
    }
}

/// Checks that servers accept a request of this size.
fn check_length(path: &str, acls: &[Acl], data: &[u8]) -> Result<(), TreeError> {
    // Rights, and the lengths of the two words.
    let acl = |acl: &Acl| 12 + acl.scheme().len() + acl.id().len();
    let bytes = path.len() + data.len() + acls.iter().map(acl).sum::<usize>();
    if bytes <= LONGEST_REQUEST {
        return Ok(());
    }
    let path = path.to_owned();
    Err(TreeError::TooLong { path, bytes })
}

fn is_same(found: &[Acl], wanted: &[Acl]) -> bool {
    found.len() == wanted.len() && wanted.iter().all(|acl| found.contains(acl))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_no_server_would_read_is_not_sent() {
        let tree = Tree::new(Layout::new("/lockkeeper"), Identity::generate("operator"));
        let acls = |count| tree.of_root(&vec![Identity::generate("shop"); count]);
        assert!(check_length("/lockkeeper/locks/shop/report", &acls(4), b"").is_ok());
        let error = check_length("/lockkeeper/locks/shop/report", &acls(30_000), b"").unwrap_err();
        assert!(error.to_string().contains("leave fewer identities"), "{error}");
    }
}
