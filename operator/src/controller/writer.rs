//! Everything that the controller writes, and the lease that it takes.
//!
//! The replica that holds the operator's own lock writes. It gets a [`Writer`] while its lease is valid, and the writer
//! checks the lease again before each write: the lease may end between two of them. No other part of the controller has
//! a client that can write to the API server.

use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lockkeeper_crds::lock::DistributedLockStatus;
use lockkeeper_crds::{DistributedLock, DistributedLockSpec, keys};
use lockkeeper_lock::{Agreement, FencingToken, YieldRequest};
use serde_json::json;

use crate::controller::error::Error;
use crate::identity::Identity;
use crate::identity::namespace_secret::Identities;
use crate::identity::secrets::Secrets;
use crate::kubernetes::events::{Events, Notice};
use crate::kubernetes::objects::{self, LockPart};
use crate::kubernetes::pods::Role;
use crate::lock_key::LockKey;
use crate::metrics::Metrics;
use crate::zookeeper::client::Way;
use crate::zookeeper::leader::{Leadership, NotLeading};
use crate::zookeeper::nodes::{Agreed, Removal, Repairs};

pub(crate) struct Writers {
    client: Client,
    events: Events,
    leadership: Leadership,
    metrics: Metrics,
}

/// Writes as the leader, while the lease is valid.
///
/// All methods that write fail with [`NotLeading`] once the lease is over.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    of: &'a Writers,
    term: FencingToken,
}

/// Writes statuses that say that the operator's own ensemble is out of reach, and events about that. It takes no lease,
/// since no replica leads then.
#[derive(Clone, Copy)]
pub(crate) struct LossWriter<'a>(&'a Writers);

/// Writes statuses of locks, and tells events about them.
pub(crate) trait StatusWriter {
    /// Writes a status on top of this version of the lock, and returns the lock; `None` when the lock is gone.
    ///
    /// A request may be under way for longer than the lease under which it was sent, and arrive when the next leader has
    /// written. The API server refuses it then, because it names the version that this replica has seen.
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`] if the writer takes a lease and it is over.
    fn write_status(
        &self,
        key: &LockKey,
        version: Option<String>,
        status: &DistributedLockStatus,
    ) -> impl Future<Output = Result<Option<DistributedLock>, Error>> + Send;

    /// Publishes events about what was written or seen of an object, best effort.
    fn tell(&self, notices: &[Notice], about: &ObjectReference) -> impl Future<Output = ()> + Send;
}

// === impl Writers ===

impl Writers {
    /// Writers to this API server, for the replica that leads.
    pub(crate) fn new(client: Client, leadership: Leadership, metrics: Metrics) -> Self {
        Self {
            events: Events::new(client.clone(), metrics.clone()),
            client,
            leadership,
            metrics,
        }
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.leadership.is_leading()
    }

    /// A writer, if this replica leads now.
    ///
    /// # Errors
    /// When this replica does not lead.
    pub(crate) fn writer(&self) -> Result<Writer<'_>, NotLeading> {
        let term = self.leadership.check()?;
        Ok(Writer { of: self, term })
    }

    /// A writer for statuses while the operator's own ensemble is out of reach.
    pub(crate) fn loss_writer(&self) -> LossWriter<'_> {
        LossWriter(self)
    }

    async fn patch_status(
        &self,
        key: &LockKey,
        version: Option<String>,
        status: &DistributedLockStatus,
    ) -> Result<Option<DistributedLock>, Error> {
        self.metrics.wrote("status");
        let api: Api<LockPart> = Api::namespaced(self.client.clone(), &key.namespace);
        let patch = on_top_of(version, status);
        match api.patch_status(&key.name, &PatchParams::default(), &patch).await {
            Ok(lock) => Ok(Some(lock.into())),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(Error::writing("the status")(error)),
        }
    }
}

impl std::fmt::Debug for Writers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writers").finish_non_exhaustive()
    }
}

// === impl Writer ===

impl Writer<'_> {
    /// The token of the time for which this replica leads without a break.
    pub(crate) fn term(&self) -> FencingToken {
        self.term
    }

    /// Creates a lock with the defaults; false if it exists.
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`].
    pub(crate) async fn create_lock(&self, key: &LockKey) -> Result<bool, Error> {
        let client = self.check("lock")?;
        let api: Api<DistributedLock> = Api::namespaced(client, &key.namespace);
        let lock = DistributedLock::new(&key.name, DistributedLockSpec::default());
        match api.create(&PostParams::default(), &lock).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(Error::writing("a DistributedLock")(error)),
        }
    }

    /// Changes the metadata of a lock, and returns its version after that; `None` when the lock is gone. `kind` is what
    /// is counted.
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`].
    pub(crate) async fn patch_lock(
        &self,
        key: &LockKey,
        kind: &'static str,
        patch: &Patch<impl serde::Serialize + std::fmt::Debug>,
    ) -> Result<Option<String>, Error> {
        let client = self.check(kind)?;
        match objects::patch::<DistributedLock>(&client, &key.namespace, &key.name, patch).await {
            Ok(lock) => Ok(lock.metadata.resource_version),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(Error::writing("the DistributedLock")(error)),
        }
    }

    /// Writes the role label of a pod; false when there is no pod of this name and UID.
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`].
    pub(crate) async fn set_role(
        &self,
        namespace: &str,
        pod: &str,
        uid: &str,
        role: Role,
    ) -> Result<bool, Error> {
        let client = self.check("role")?;
        // The UID is a condition: the API server refuses the patch for another pod of this name.
        let patch = json!({"metadata": {"uid": uid, "labels": {keys::ROLE: role.as_str()}}});
        match objects::patch::<Pod>(&client, namespace, pod, &Patch::Merge(patch)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
            Err(error) => Err(Error::writing("the role of a pod")(error)),
        }
    }

    /// Asks the API server, by a dry run, whether the Secret of a namespace could be written; see
    /// [`Secrets::would_be_written`].
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`].
    pub(crate) async fn try_secret(
        &self,
        secrets: &Secrets,
        namespace: &str,
        wanted: &Identities,
    ) -> Result<bool, Error> {
        self.is_valid()?;
        let would = secrets.would_be_written(&self.of.client, namespace, wanted);
        would.await.map_err(Error::writing("the namespace's Secret"))
    }

    /// Writes the Secret of a namespace; see [`Secrets::write_secret`].
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`].
    pub(crate) async fn write_secret(
        &self,
        secrets: &Secrets,
        namespace: &str,
        wanted: &Identities,
    ) -> Result<(), Error> {
        let client = self.check("secret")?;
        let written = secrets.write_secret(&client, namespace, wanted);
        written.await.map_err(Error::writing("the namespace's Secret"))
    }

    /// Creates and repairs the nodes of a lock, see [`Way::ensure_lock`].
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn ensure_lock(
        &self,
        way: &Way,
        key: &LockKey,
        identities: &[Identity],
    ) -> Result<Repairs, Error> {
        self.is_valid()?;
        Ok(way.ensure_lock(key, identities).await?)
    }

    /// Writes what the contenders of a lock have to agree on, see [`Way::agree`].
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn agree(
        &self,
        way: &Way,
        key: &LockKey,
        identities: &[Identity],
        agreement: Agreement,
    ) -> Result<Agreed, Error> {
        self.is_valid()?;
        Ok(way.agree(key, identities, agreement).await?)
    }

    /// Removes the nodes of a lock, see [`Way::remove_lock`].
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn remove_lock(&self, way: &Way, key: &LockKey) -> Result<Removal, Error> {
        self.is_valid()?;
        Ok(way.remove_lock(key).await?)
    }

    /// Removes a contender whose machine is known to be off, see [`Way::remove_contender`].
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn remove_contender(
        &self,
        way: &Way,
        key: &LockKey,
        contender: &str,
        token: FencingToken,
    ) -> Result<bool, Error> {
        self.is_valid()?;
        Ok(way.remove_contender(key, contender, token).await?)
    }

    /// Asks contenders to step down, see [`Way::request_yield`].
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn request_yield(
        &self,
        way: &Way,
        key: &LockKey,
        request: &YieldRequest,
    ) -> Result<bool, Error> {
        self.is_valid()?;
        Ok(way.request_yield(key, request).await?)
    }

    /// Whether this replica leads still, without a break since it got the writer.
    fn is_valid(&self) -> Result<(), NotLeading> {
        let term = self.of.leadership.check()?;
        (term == self.term).then_some(()).ok_or(NotLeading)
    }

    /// The client for one write, which is counted as this kind.
    fn check(&self, kind: &'static str) -> Result<Client, NotLeading> {
        self.is_valid()?;
        self.of.metrics.wrote(kind);
        Ok(self.of.client.clone())
    }
}

impl StatusWriter for Writer<'_> {
    async fn write_status(
        &self,
        key: &LockKey,
        version: Option<String>,
        status: &DistributedLockStatus,
    ) -> Result<Option<DistributedLock>, Error> {
        self.is_valid()?;
        self.of.patch_status(key, version, status).await
    }

    async fn tell(&self, notices: &[Notice], about: &ObjectReference) {
        // No check of the lease: events are about what this replica has written, and the next leader sees no change
        // to report.
        self.of.events.tell(notices, about).await;
    }
}

impl StatusWriter for LossWriter<'_> {
    async fn write_status(
        &self,
        key: &LockKey,
        version: Option<String>,
        status: &DistributedLockStatus,
    ) -> Result<Option<DistributedLock>, Error> {
        self.0.patch_status(key, version, status).await
    }

    async fn tell(&self, notices: &[Notice], about: &ObjectReference) {
        self.0.events.tell(notices, about).await;
    }
}

/// Replaces the status as a whole, if the lock still has this version. A merge would keep fields that are gone.
fn on_top_of(version: Option<String>, status: &DistributedLockStatus) -> Patch<DistributedLock> {
    let add = |path: &str, value| {
        let path = path.parse().expect("a pointer");
        PatchOperation::Add(AddOperation { path, value })
    };
    Patch::Json(JsonPatch(vec![
        add("/metadata/resourceVersion", version.into()),
        add(
            "/status",
            serde_json::to_value(status).expect("strings and numbers"),
        ),
    ]))
}
