//! Which ensemble a lock names, and what the operator needs to follow it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::{Client, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::zookeeper::{ConnectString, InvalidConnectString};

use super::places::Places;
use crate::identity::namespace_secret;
use crate::identity::secrets::Secrets;
use crate::problem::Problem;
use crate::work_queue::WorkQueue;
use crate::zookeeper::allowed_hosts::Hosts;

/// What a lock says of its ensemble. All that name the same share a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    /// Namespace of the lock, and of the Secrets.
    pub(crate) namespace: String,
    pub(crate) connect: String,
    /// Secret with the identities.
    pub(crate) credentials: String,
    /// Secret with the certificates.
    pub(crate) tls: Option<String>,
}

/// What is needed to follow one.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Where Secrets are read.
    pub(crate) client: Client,
    /// The identities of the namespaces.
    pub(crate) secrets: Arc<Secrets>,
    /// The locks that have to be looked at.
    pub(crate) changes: Arc<WorkQueue>,
    /// The operator's ensemble.
    pub(crate) own: ConnectString,
    /// Where everything is, below the chroot.
    pub(crate) root: String,
    /// The hosts that locks may name.
    pub(crate) hosts: Arc<Hosts>,
    /// How many ensembles may be followed at once.
    pub(crate) places: Arc<Places>,
    /// The operator's own program, for the processes of the sessions.
    pub(crate) program: PathBuf,
}

// === impl Source ===

impl Source {
    /// What a lock says; `None` for the operator's own ensemble, also by its name.
    ///
    /// # Errors
    /// When it names no ensemble.
    pub(crate) fn of(lock: &DistributedLock, own: &ConnectString) -> Result<Option<Self>, Problem> {
        let Some(spec) = &lock.spec.zookeeper else {
            return Ok(None);
        };
        let connect: ConnectString = spec.connect.parse().map_err(|error: InvalidConnectString| {
            Problem::new(Reason::InvalidSpec, format!("zookeeper.connect: {error}"))
        })?;
        if connect == *own && spec.credentials_secret.is_none() {
            return Ok(None);
        }
        let name = |secret: &Option<lockkeeper_crds::lock::SecretRef>| Some(secret.as_ref()?.name.clone());
        Ok(Some(Self {
            namespace: lock.namespace().unwrap_or_default(),
            connect: connect.to_string(),
            credentials: name(&spec.credentials_secret).unwrap_or_else(|| namespace_secret::NAME.to_owned()),
            tls: name(&spec.tls_secret),
        }))
    }

    pub(super) fn permit(&self, hosts: &Hosts) -> Result<(), Problem> {
        let connect = self.connect.parse().map_err(|error: InvalidConnectString| {
            Problem::new(Reason::InvalidSpec, format!("zookeeper.connect: {error}"))
        })?;
        hosts.check(&connect)
    }

    /// Whether its identities are those that the operator makes.
    pub(super) fn has_own_identities(&self) -> bool {
        self.credentials == namespace_secret::NAME
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// The value of a mutex, also of one whose holder panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
