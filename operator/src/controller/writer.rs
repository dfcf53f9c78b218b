//! Everything that the controller writes, and the lease that it takes.
//!
//! The replica that holds the operator's own lock writes. It gets a [`Writer`] while its lease is valid. The lease may end
//! between two writes, so [`leased`] gives the writer what it writes with for one write at a time, while the lease is
//! valid. No other part of the controller has a client that writes to the API server, or writes over a [`LeasedWay`].

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lockkeeper_crds::lock::DistributedLockStatus;
use lockkeeper_crds::{DistributedLock, DistributedLockSpec, keys};
use lockkeeper_lock::{Agreement, FencingToken, YieldRequest};
use serde_json::{Map, Value, json};

use crate::controller::error::Error;
use crate::identity::Identity;
use crate::kubernetes::events::{Events, Notice};
use crate::kubernetes::objects::{self, LockPart};
use crate::kubernetes::pods::Role;
use crate::leadership::{Leadership, NotLeading, Term};
use crate::lock_key::LockKey;
use crate::metrics::Metrics;
use crate::zookeeper::nodes::{Agreed, Removal, Repairs};
use crate::zookeeper::reachability::Reachability;

mod leased;
mod secrets;

use leased::LeasedClient;
pub(crate) use leased::LeasedWay;

pub(crate) struct Writers {
    client: LeasedClient,
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
    term: Term<'a>,
}

/// Writes statuses that say that the operator's own ensemble is out of reach, and events about that. It takes no lease:
/// no replica leads then, and users have to hear of it. Each replica writes once for each loss, and only on top of the
/// version that it has seen.
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
    /// Returns writers to this API server, for the replica that leads.
    pub(crate) fn new(client: Client, leadership: Leadership, metrics: Metrics) -> Self {
        Self {
            events: Events::new(client.clone(), metrics.clone()),
            client: LeasedClient::new(client),
            leadership,
            metrics,
        }
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.leadership.is_leading()
    }

    /// Returns a writer, if this replica leads now.
    ///
    /// # Errors
    /// When this replica does not lead.
    pub(crate) fn writer(&self) -> Result<Writer<'_>, NotLeading> {
        let term = self.leadership.term()?;
        Ok(Writer { of: self, term })
    }

    /// Returns a writer for statuses, and the number of the loss, if `own` says that the operator's own ensemble is out
    /// of reach.
    pub(crate) fn loss_writer(&self, own: &Reachability) -> Option<(LossWriter<'_>, u64)> {
        match own {
            Reachability::Lost { time, .. } => Some((LossWriter(self), *time)),
            Reachability::Up(_) | Reachability::Unsure => None,
        }
    }

    /// Counts a write of this kind.
    fn count(&self, kind: &'static str) {
        self.metrics.wrote(kind);
    }
}

impl std::fmt::Debug for Writers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writers").finish_non_exhaustive()
    }
}

// === impl Writer ===

impl Writer<'_> {
    /// Returns the token of the time for which this replica leads without a break.
    pub(crate) fn term(&self) -> FencingToken {
        self.term.token()
    }

    /// Creates a lock with these settings; false if it exists.
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`].
    pub(crate) async fn create_lock(&self, key: &LockKey, spec: DistributedLockSpec) -> Result<bool, Error> {
        let client = self.counted("lock")?;
        let api: Api<DistributedLock> = Api::namespaced(client, &key.namespace);
        let lock = DistributedLock::new(&key.name, spec);
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
        let client = self.counted(kind)?;
        match objects::patch::<DistributedLock>(&client, &key.namespace, &key.name, patch).await {
            Ok(lock) => Ok(lock.metadata.resource_version),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(Error::writing("the DistributedLock")(error)),
        }
    }

    /// Removes the annotation of a handoff from this version of a lock. Returns the new version; `None` if the lock has
    /// another one by now, or is gone.
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`].
    pub(crate) async fn acknowledge(&self, key: &LockKey, version: &str) -> Result<Option<String>, Error> {
        let client = self.counted("annotation")?;
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": {keys::HANDOFF: null}}});
        let patch = Patch::Merge(patch);
        match objects::patch::<DistributedLock>(&client, &key.namespace, &key.name, &patch).await {
            Ok(lock) => Ok(lock.metadata.resource_version),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(None),
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
        let client = self.counted("role")?;
        // The UID is a condition: the API server refuses the patch for another pod of this name.
        let patch = json!({"metadata": {"uid": uid, "labels": {keys::ROLE: role.as_str()}}});
        match objects::patch::<Pod>(&client, namespace, pod, &Patch::Merge(patch)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
            Err(error) => Err(Error::writing("the role of a pod")(error)),
        }
    }

    /// Creates and repairs the nodes of a lock, see `Way::ensure_lock`.
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn ensure_lock(
        &self,
        way: &LeasedWay,
        key: &LockKey,
        identities: &[Identity],
    ) -> Result<Repairs, Error> {
        Ok(way.open(self.term)?.ensure_lock(key, identities).await?)
    }

    /// Writes what the contenders of a lock have to agree on, see `Way::agree`.
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn agree(
        &self,
        way: &LeasedWay,
        key: &LockKey,
        identities: &[Identity],
        agreement: Agreement,
    ) -> Result<Agreed, Error> {
        Ok(way.open(self.term)?.agree(key, identities, agreement).await?)
    }

    /// Removes the nodes of a lock, see `Way::remove_lock`.
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn remove_lock(&self, way: &LeasedWay, key: &LockKey) -> Result<Removal, Error> {
        Ok(way.open(self.term)?.remove_lock(key).await?)
    }

    /// Removes a contender whose machine is known to be off, see `Way::remove_contender`.
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn remove_contender(
        &self,
        way: &LeasedWay,
        key: &LockKey,
        contender: &str,
        token: FencingToken,
    ) -> Result<bool, Error> {
        Ok(way
            .open(self.term)?
            .remove_contender(key, contender, token)
            .await?)
    }

    /// Asks contenders to step down, see `Way::request_yield`.
    ///
    /// # Errors
    /// Those of the ensemble; [`NotLeading`].
    pub(crate) async fn request_yield(
        &self,
        way: &LeasedWay,
        key: &LockKey,
        request: &YieldRequest,
    ) -> Result<bool, Error> {
        Ok(way.open(self.term)?.request_yield(key, request).await?)
    }

    /// Returns the client, for one write.
    fn client(&self) -> Result<Client, NotLeading> {
        self.of.client.open(self.term)
    }

    /// Returns the client, for one write that is counted as this kind.
    fn counted(&self, kind: &'static str) -> Result<Client, NotLeading> {
        let client = self.client()?;
        self.of.count(kind);
        Ok(client)
    }
}

impl StatusWriter for Writer<'_> {
    async fn write_status(
        &self,
        key: &LockKey,
        version: Option<String>,
        status: &DistributedLockStatus,
    ) -> Result<Option<DistributedLock>, Error> {
        patch_status(self.counted("status")?, key, version, status).await
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
        self.0.count("status");
        patch_status(self.0.client.open_after_loss(), key, version, status).await
    }

    async fn tell(&self, notices: &[Notice], about: &ObjectReference) {
        self.0.events.tell(notices, about).await;
    }
}

async fn patch_status(
    client: Client,
    key: &LockKey,
    version: Option<String>,
    status: &DistributedLockStatus,
) -> Result<Option<DistributedLock>, Error> {
    let api: Api<LockPart> = Api::namespaced(client, &key.namespace);
    let patch = on_top_of(version, status);
    match api.patch_status(&key.name, &PatchParams::default(), &patch).await {
        Ok(lock) => Ok(Some(lock.into())),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(Error::writing("the status")(error)),
    }
}

/// Replaces the status, if the lock still has this version: fields that are gone are removed. A history stays as it is
/// unless this status has one, since the operator keeps none in memory.
fn on_top_of(version: Option<String>, status: &DistributedLockStatus) -> Patch<Value> {
    let DistributedLockStatus {
        holders,
        waiting,
        queue,
        ensemble,
        stop_budget,
        trial,
        fenced,
        history,
        observed_generation,
        conditions,
    } = status;
    let mut fields = json!({
        "holders": holders,
        "waiting": waiting,
        "queue": queue,
        "ensemble": ensemble,
        "stopBudget": stop_budget,
        "trial": trial,
        "fenced": fenced,
        "observedGeneration": observed_generation,
        "conditions": conditions,
    });
    // In a merge patch null removes a field, and a list replaces the one before (RFC 7386).
    for value in fields.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if value.as_array().is_some_and(Vec::is_empty) {
            *value = Value::Null;
        }
    }
    if !history.is_empty() {
        fields["history"] = json!(history);
    }
    Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": fields}))
}
