//! The interface to an ensemble: all requests that the operator makes there for a lock.
//!
//! A connection of this process leads to the operator's own ensemble. An ensemble that a lock names may be hostile, so a
//! process of its own ([`crate::zookeeper::sandbox`]) connects to it.

use std::sync::Arc;

use lockkeeper_lock::{Agreement, CleanRelease, FencingToken, YieldRequest};

use crate::identity::Identity;
use crate::lock_key::LockKey;
use crate::zookeeper::direct::Direct;
use crate::zookeeper::nodes::{Agreed, Ending, Removal, Repairs, TreeError};
use crate::zookeeper::sandbox::Session;

/// A way into an ensemble. Cheap to clone.
///
/// In the operator only the controller's writer writes over it, while its lease is valid (`LeasedWay`).
#[derive(Clone, Debug)]
pub enum Way {
    /// By a connection of this process.
    Direct(Direct),
    /// By another process.
    Apart(Arc<Session>),
}

// === impl Way ===

/// As the methods of [`Direct`] say; by another process, [`TreeError::Away`] and [`TreeError::Busy`] too.
impl Way {
    /// Which session it is: another one has to look at everything again.
    pub(crate) fn session(&self) -> i64 {
        match self {
            Self::Direct(direct) => direct.connection.session_id().0,
            Self::Apart(session) => session.id(),
        }
    }

    /// See [`Direct::ensure_lock`].
    ///
    /// # Errors
    /// As there.
    pub async fn ensure_lock(&self, key: &LockKey, identities: &[Identity]) -> Result<Repairs, TreeError> {
        match self {
            Self::Direct(direct) => direct.ensure_lock(key, identities).await,
            Self::Apart(session) => session.ensure_lock(key, identities).await,
        }
    }

    /// See [`Direct::agree`].
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
            Self::Direct(direct) => direct.agree(key, identities, agreement).await,
            Self::Apart(session) => session.agree(key, identities, agreement).await,
        }
    }

    /// See [`Direct::remove_lock`].
    ///
    /// # Errors
    /// As there.
    pub async fn remove_lock(&self, key: &LockKey) -> Result<Removal, TreeError> {
        match self {
            Self::Direct(direct) => direct.remove_lock(key).await,
            Self::Apart(session) => session.remove_lock(key).await,
        }
    }

    /// See [`Direct::remove_contender`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn remove_contender(
        &self,
        key: &LockKey,
        contender: &str,
        token: FencingToken,
    ) -> Result<bool, TreeError> {
        match self {
            Self::Direct(direct) => direct.remove_contender(key, contender, token).await,
            Self::Apart(session) => session.remove_contender(key, contender, token).await,
        }
    }

    /// See [`Direct::request_yield`].
    ///
    /// # Errors
    /// As there.
    pub async fn request_yield(&self, key: &LockKey, request: &YieldRequest) -> Result<bool, TreeError> {
        match self {
            Self::Direct(direct) => direct.request_yield(key, request).await,
            Self::Apart(session) => session.request_yield(key, request).await,
        }
    }

    /// See [`Direct::endings`].
    ///
    /// # Errors
    /// As there.
    pub async fn endings(&self, key: &LockKey, gone: &[CleanRelease]) -> Result<Vec<Ending>, TreeError> {
        match self {
            Self::Direct(direct) => direct.endings(key, gone).await,
            Self::Apart(session) => session.endings(key, gone).await,
        }
    }

    /// Contenders of the namespace's pods that are not open to its identity in use, which has this user: the lock and
    /// the pod.
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
