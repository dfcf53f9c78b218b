//! A way into an ensemble: all that is ever asked there for a lock, whoever carries it out.
//!
//! In the operator's own ensemble that is a connection of this process. An ensemble that a lock names may be
//! hostile: there it is a process of its own ([`crate::session`]).

use std::sync::Arc;

use futures_util::future::try_join_all;
use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{Agreement, CleanRelease, YieldRequest};
use zookeeper_client::{Acl, Error as ZkError};

use crate::identity::{Identity, is_user_of};
use crate::layout::LockKey;
use crate::mirror::View;
use crate::session::Session;
use crate::tree::{Agreed, Removal, Repairs, Tree, TreeError};

/// ACLs that are read at once.
const READS: usize = 32;

/// A way into an ensemble. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Way {
    /// By a connection of this process.
    Direct(Direct),
    /// By another process.
    Apart(Arc<Session>),
}

/// A connection, and what is done by it.
#[derive(Clone, Debug)]
pub struct Direct {
    /// The connection.
    pub connection: Arc<Onlooker>,
    /// The nodes.
    pub tree: Tree,
    /// The queues.
    pub view: View,
}

// === impl Way ===

/// As the methods of [`Tree`] say; by another process, [`TreeError::Away`] and [`TreeError::Busy`] too.
impl Way {
    /// Which session it is: another one has to look at everything again.
    pub fn session(&self) -> i64 {
        match self {
            Self::Direct(direct) => direct.connection.session_id().0,
            Self::Apart(session) => session.id(),
        }
    }

    /// See [`Tree::ensure_lock`].
    ///
    /// # Errors
    /// As there.
    pub async fn ensure_lock(&self, key: &LockKey, identities: &[Identity]) -> Result<Repairs, TreeError> {
        match self {
            Self::Direct(direct) => {
                let connection = &direct.connection;
                direct.tree.ensure_lock(connection, key, identities).await
            }
            Self::Apart(session) => session.ensure_lock(key, identities).await,
        }
    }

    /// See [`Tree::agree`].
    ///
    /// # Errors
    /// As there.
    pub async fn agree(
        &self,
        key: &LockKey,
        identities: &[Identity],
        agreement: Agreement,
    ) -> Result<Agreed, TreeError> {
        match self {
            Self::Direct(direct) => {
                let connection = &direct.connection;
                direct.tree.agree(connection, key, identities, agreement).await
            }
            Self::Apart(session) => session.agree(key, identities, agreement).await,
        }
    }

    /// See [`Tree::remove_lock`].
    ///
    /// # Errors
    /// As there.
    pub async fn remove_lock(&self, key: &LockKey) -> Result<Removal, TreeError> {
        match self {
            Self::Direct(direct) => direct.tree.remove_lock(&direct.connection, key).await,
            Self::Apart(session) => session.remove_lock(key).await,
        }
    }

    /// See [`Tree::request_yield`].
    ///
    /// # Errors
    /// As there.
    pub async fn request_yield(&self, key: &LockKey, request: &YieldRequest) -> Result<bool, TreeError> {
        match self {
            Self::Direct(direct) => {
                let connection = &direct.connection;
                direct.tree.request_yield(connection, key, request).await
            }
            Self::Apart(session) => session.request_yield(key, request).await,
        }
    }

    /// See [`Tree::lost`].
    ///
    /// # Errors
    /// As there.
    pub async fn lost(&self, key: &LockKey, gone: &[CleanRelease]) -> Result<Vec<bool>, TreeError> {
        match self {
            Self::Direct(direct) => direct.tree.lost(&direct.connection, key, gone).await,
            Self::Apart(session) => session.lost(key, gone).await,
        }
    }

    /// Contenders of the namespace's pods that are not open to its identity in use, which has this user: the lock,
    /// and who it is.
    ///
    /// # Errors
    /// Those of the ensemble.
    pub async fn left_behind(
        &self,
        namespace: &str,
        current: &str,
    ) -> Result<Vec<(LockKey, String)>, TreeError> {
        match self {
            Self::Direct(direct) => direct.left_behind(namespace, current).await,
            Self::Apart(session) => session.left_behind(namespace, current).await,
        }
    }
}

// === impl Direct ===

impl Direct {
    async fn left_behind(&self, namespace: &str, current: &str) -> Result<Vec<(LockKey, String)>, TreeError> {
        let mut contenders = Vec::new();
        for key in self.view.locks_of(namespace) {
            for contender in self.view.queue(&key).contenders() {
                let pod = contender.data.pod.as_ref();
                let who = pod.map_or_else(|| contender.name.to_string(), |pod| format!("pod {}", pod.name));
                let path = format!("{}/{}", self.tree.layout().lock(&key), contender.name);
                contenders.push((key.clone(), who, path));
            }
        }
        let mut behind = Vec::new();
        for some in contenders.chunks(READS) {
            let users = try_join_all(some.iter().map(|(_, _, path)| self.users(path))).await?;
            let some = some.iter().zip(users);
            let some = some.filter(|(_, users)| is_behind(users, namespace, current));
            behind.extend(some.map(|((key, who, _), _)| (key.clone(), who.clone())));
        }
        Ok(behind)
    }

    /// Who may do something with a contender: the names are shown to whoever may read the node; the hashes are not.
    async fn users(&self, path: &str) -> Result<Vec<String>, TreeError> {
        let user = |acl: &Acl| Some(acl.id().split_once(':')?.0.to_owned());
        match self.connection.get_acl(path).await {
            Ok((acls, _)) => Ok(acls.iter().filter_map(user).collect()),
            // Gone, or not of our pods.
            Err(ZkError::NoNode | ZkError::NoAuth) => Ok(Vec::new()),
            Err(error) => Err(TreeError::new(path, error)),
        }
    }
}

/// Whether these users, of an ACL, are those of a pod of the namespace that does not know its identity.
fn is_behind(users: &[String], namespace: &str, current: &str) -> bool {
    users.iter().any(|user| is_user_of(user, namespace)) && !users.iter().any(|user| user == current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_left_behind_when_its_contender_is_open_to_older_identities_only() {
        let [old, current, foreign] = ["shop", "shop", "bank"].map(Identity::generate);
        let is_behind = |identities: &[&Identity]| {
            let users: Vec<_> = identities.iter().map(|one| one.user().to_owned()).collect();
            is_behind(&users, "shop", current.user())
        };
        assert!(is_behind(&[&old]));
        assert!(!is_behind(&[&old, &current]));
        assert!(!is_behind(&[&foreign]), "not one of ours to wait for");
        assert!(!is_behind(&[]));
    }
}
