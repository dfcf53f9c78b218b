//! An ensemble that is asked over a connection of this process.

use std::sync::Arc;

use futures_util::future::try_join_all;
use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{Agreement, CleanRelease, FencingToken, YieldRequest};
use zookeeper_client::{Acl, Error as ZkError};

use crate::identity::{Identity, is_user_of};
use crate::lock_key::LockKey;
use crate::zookeeper::nodes::{Agreed, Ending, Removal, Repairs, Tree, TreeError};
use crate::zookeeper::queues::View;

/// ACLs that are read at once.
const READS: usize = 32;

/// A connection, and what is done by it.
#[derive(Clone, Debug)]
pub struct Direct {
    pub(crate) connection: Arc<Onlooker>,
    pub(crate) tree: Tree,
    pub(crate) view: View,
}

// === impl Direct ===

impl Direct {
    /// See [`Tree::ensure_lock`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn ensure_lock(
        &self,
        key: &LockKey,
        identities: &[Identity],
    ) -> Result<Repairs, TreeError> {
        self.tree.ensure_lock(&self.connection, key, identities).await
    }

    /// See [`Tree::agree`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn agree(
        &self,
        key: &LockKey,
        identities: &[Identity],
        agreement: Agreement,
    ) -> Result<Agreed, TreeError> {
        self.tree
            .agree(&self.connection, key, identities, agreement)
            .await
    }

    /// See [`Tree::remove_lock`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn remove_lock(&self, key: &LockKey) -> Result<Removal, TreeError> {
        self.tree.remove_lock(&self.connection, key).await
    }

    /// See [`Tree::remove_contender`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn remove_contender(
        &self,
        key: &LockKey,
        contender: &str,
        token: FencingToken,
    ) -> Result<bool, TreeError> {
        self.tree
            .remove_contender(&self.connection, key, contender, token)
            .await
    }

    /// See [`Tree::request_yield`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn request_yield(
        &self,
        key: &LockKey,
        request: &YieldRequest,
    ) -> Result<bool, TreeError> {
        self.tree.request_yield(&self.connection, key, request).await
    }

    /// See [`Tree::endings`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn endings(
        &self,
        key: &LockKey,
        gone: &[CleanRelease],
    ) -> Result<Vec<Ending>, TreeError> {
        self.tree.endings(&self.connection, key, gone).await
    }

    /// Contenders of the namespace's pods that are not open to its identity in use, which has this user: the lock and
    /// the pod.
    ///
    /// # Errors
    /// Those of the ensemble.
    pub(crate) async fn left_behind(
        &self,
        namespace: &str,
        current: &str,
    ) -> Result<Vec<(LockKey, String)>, TreeError> {
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

    /// The users with rights to a contender: clients that may read the node see the names, but not the hashes.
    async fn users(&self, path: &str) -> Result<Vec<String>, TreeError> {
        let user = |acl: &Acl| Some(acl.id().split_once(':')?.0.to_owned());
        match self.connection.get_acl(path).await {
            Ok((acls, _)) => Ok(acls.iter().filter_map(user).collect()),
            // The contender is gone, or is not one of our pods.
            Err(ZkError::NoNode | ZkError::NoAuth) => Ok(Vec::new()),
            Err(error) => Err(TreeError::new(path, error)),
        }
    }
}

/// Whether these users of an ACL belong to a pod of the namespace that does not know the identity in use.
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
