//! The nodes around the locks: made where they are missing, with the rights that they should have.
//!
//! ZooKeeper checks a node and its parent only, so a namespace needs no right above its lock roots.
//! The world has none anywhere.

use std::sync::Arc;

use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{Agreement, CleanRelease, Control, LONGEST_CONTROL_DATA, YieldRequest};
use zookeeper_client::{Acl, Acls, CreateMode, Error, MultiWriteError, Permission};

use crate::cluster;
use crate::identity::Identity;
use crate::layout::{Layout, LockKey, Place};

mod sweep;

/// Tries of a conditional write before giving up: each failure means that somebody else succeeded,
/// and a control node is written once per release.
const TRIES: usize = 8;

/// Longest rights and data that are sent in one request, in bytes: half of what a server reads (`jute.maxbuffer`, 1 MB).
/// It closes the connection at a longer one, and that is the one on which all locks are followed.
const LONGEST_REQUEST: usize = 512 << 10;

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
    /// The ensemble is reached by another process, which is gone, or failed to do it.
    #[error("{0}")]
    Away(String),
    /// As many requests as may be under way in an ensemble of somebody's are.
    #[error("the ensemble has not answered the requests before yet")]
    Busy,
    /// It would take a longer request than servers read.
    #[error(
        "the rights to {path} take {bytes} bytes, and the operator sends at most {LONGEST_REQUEST}: leave fewer \
         identities in the Secret"
    )]
    TooLong {
        /// The node.
        path: String,
        /// How many bytes.
        bytes: usize,
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
    /// The cluster to which everything below the root belongs, where it is to be one.
    cluster: Option<cluster::Uid>,
}

/// What had to be done for a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Nodes that were missing.
    pub made: usize,
    /// Nodes that had other rights.
    pub rights: usize,
}

/// What came of a wish to remove a lock, or one child of its root. The later ones stand more in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removal {
    /// Nothing of it is left.
    Done,
    /// Some of what was below its root is gone, and more is there: it takes another try.
    Goes,
    /// Something stays that is nobody's place in the queue, and the lock's nodes with it: what, and why.
    Left(String),
    /// Somebody stands in its queue.
    InUse,
}

/// What came of a wish that contenders agree on something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// It is written.
    Done,
    /// Somebody stands in the queue, and what was agreed on before stays.
    Pending {
        /// What that is, if it can be read.
        before: Option<Agreement>,
    },
}

// === impl Tree ===

impl Tree {
    /// The tree of `layout`, looked after by `operator`.
    pub fn new(layout: Layout, operator: Identity) -> Self {
        Self {
            layout,
            owners: [operator].into(),
            namespace: None,
            cluster: None,
        }
    }

    /// The same, as that of one cluster alone.
    pub fn of_cluster(self, uid: cluster::Uid) -> Self {
        let cluster = Some(uid);
        Self { cluster, ..self }
    }

    /// The part of a namespace in an ensemble that is none of the operator's: everything there is done, and
    /// owned, by the identities that its locks name.
    pub fn of_namespace(layout: Layout, namespace: &str, owners: &[Identity]) -> Self {
        Self {
            layout,
            owners: owners.into(),
            namespace: Some(namespace.into()),
            cluster: None,
        }
    }

    /// What is looked after, with everything below it.
    pub fn place(&self) -> Place {
        match &self.namespace {
            None => Place::Locks,
            Some(namespace) => Place::Namespace(Arc::clone(namespace)),
        }
    }

    /// Whose it is, if it is one cluster's: waits until that is known.
    pub async fn cluster(&self) -> Option<Arc<str>> {
        let mut uid = self.cluster.clone()?;
        let known = uid.wait_for(Option::is_some).await;
        known.ok().and_then(|uid| uid.clone())
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
        let root = self.of_root(identities);
        let control = self.with(identities, Permission::READ | Permission::WRITE);
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

    /// Writes what the contenders of a lock have to agree on into its root: at once where nothing is written, else
    /// only while nobody is in the queue. Then the root is made anew in one transaction, which fails where it
    /// has children. The root and its rights are there already ([`Tree::ensure_lock`]).
    ///
    /// # Errors
    /// When a node is somebody else's, or the connection is lost.
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

    /// Removes a lock's root and control node, unless somebody stands in the queue. What stands below the root and is
    /// nobody's place in it goes too, as far as it can. What is somebody else's in an ensemble that is none of the
    /// operator's stays: it could not be provided either, and no object waits for it.
    ///
    /// # Errors
    /// When a node is somebody else's in the operator's ensemble, or the connection is lost.
    pub async fn remove_lock(&self, connection: &Onlooker, key: &LockKey) -> Result<Removal, TreeError> {
        let (root, control) = (self.layout.lock(key), self.layout.control(key));
        match self.remove(connection, &root).await? {
            Removal::Done => {}
            _ => match sweep::sweep(connection, &root).await {
                Ok(Removal::Done) if self.remove(connection, &root).await? == Removal::Done => {}
                // Somebody came in between.
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

    /// Removes a node of a lock that has no children.
    async fn remove(&self, connection: &Onlooker, path: &str) -> Result<Removal, TreeError> {
        match connection.delete(path, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(Removal::Done),
            Err(Error::NoAuth) if self.namespace.is_some() => Ok(Removal::Done),
            Err(Error::NotEmpty) => Ok(Removal::Left(format!("{path} has children"))),
            Err(error) => Err(failed(path, error)),
        }
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
            let (data, version) = control(connection, &path)
                .await
                .map_err(|error| failed(&path, error))?;
            let before = Control::parse(&data);
            if request.contenders.iter().all(|contender| before.asks(contender)) {
                return Ok(false);
            }
            let control = before.clone().with_yield(request.clone());
            // All that a control node has room for.
            let asked = |control: &Control| control.yield_request.clone().map(|request| request.contenders);
            if asked(&control) == asked(&before) {
                return Ok(false);
            }
            match connection
                .set_data(&path, &control.to_data(), Some(version))
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

    /// Which of these holders, that are gone, went without a clean release; all by name and token.
    ///
    /// # Errors
    /// When the control node is somebody else's, or the connection is lost.
    pub async fn lost(
        &self,
        connection: &Onlooker,
        key: &LockKey,
        gone: &[CleanRelease],
    ) -> Result<Vec<bool>, TreeError> {
        let path = self.layout.control(key);
        let data = match control(connection, &path).await {
            Ok((data, _)) => data,
            // With it went what was known.
            Err(Error::NoNode) => return Ok(vec![false; gone.len()]),
            Err(error) => return Err(failed(&path, error)),
        };
        let control = Control::parse(&data);
        let gone = gone.iter();
        Ok(gone
            .map(|one| control.was_lost(&one.contender, one.token))
            .collect())
    }

    /// The rights to a lock root. Pods stand below it; what is agreed on they read, and cannot change.
    fn of_root(&self, identities: &[Identity]) -> Vec<Acl> {
        self.with(
            identities,
            Permission::READ | Permission::CREATE | Permission::DELETE,
        )
    }

    /// All rights for ourselves, and these for the identities of a namespace.
    fn with(&self, identities: &[Identity], rights: Permission) -> Vec<Acl> {
        let namespace = identities
            .iter()
            .map(|identity| Acl::new(rights, identity.auth_id()));
        self.own().into_iter().chain(namespace).collect()
    }

    /// All rights for whoever looks after the tree.
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

/// Reads a control node, and its version. Pods write there: what is longer than theirs ever is counts as nothing, and
/// is not read.
async fn control(connection: &Onlooker, path: &str) -> Result<(Vec<u8>, i32), Error> {
    let stat = connection.check_stat(path).await?.ok_or(Error::NoNode)?;
    if usize::try_from(stat.data_length).is_ok_and(|length| length > LONGEST_CONTROL_DATA) {
        return Ok((Vec::new(), stat.version));
    }
    let (data, stat) = connection.get_data(path).await?;
    Ok((data, stat.version))
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

/// Whether a request with this is one that servers read.
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

fn failed(path: &str, error: Error) -> TreeError {
    TreeError::new(path, error)
}

impl TreeError {
    /// What came of a request about a node.
    pub(crate) fn new(path: &str, error: Error) -> Self {
        let path = path.to_owned();
        match error {
            Error::NoAuth => Self::Foreign { path },
            error => Self::Failed { path, error },
        }
    }
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
