//! Objects, reduced to what is used of them. An object may have as many labels, owners, finalizers, volumes or
//! variables as fit into it, and a list of small items takes many times its length in memory once it is parsed. So
//! the parser skips what is not used.

use std::fmt;

use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{NamespaceResourceScope, ObjectList, Request, Resource};
use kube::{Api, Client};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::keys::HANDOFF;
use lockkeeper_crds::lock::{DistributedLockSpec, DistributedLockStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

mod finalizers;
mod metadata;
mod pods;
mod secret_keys;
mod secrets;
mod words;
mod workloads;

pub(crate) use finalizers::Finalizers;
use metadata::part;
pub(crate) use metadata::{DESIRED_REPLICAS, MetadataPart, REVISION};
pub(crate) use pods::{ContainerPart, ContainerStatusPart, PodPart};
pub(crate) use secret_keys::{AUTH, CA, CERTIFICATE, KEY};
pub(crate) use secrets::SecretPart;
pub(crate) use words::Word;
pub(crate) use workloads::{
    AutoscalerPart, ControllerRevisionPart, DaemonSetPart, DeploymentPart, JobPart, ReplicaSetPart,
    ServiceAccountPart, StatefulSetPart, TemplatePart, is_deployment,
};

/// Objects in one page of a list.
pub(crate) const PAGE: u32 = 250;

/// How many full pages of a namespace's list are read.
const PAGES: usize = 40;

part! {
    /// A lock. Of its finalizers ours is kept; without any they are `None`.
    LockPart of DistributedLock {
        /// As its schema bounds it.
        spec: DistributedLockSpec,
        /// What the operator wrote.
        status: Option<DistributedLockStatus>,
    }
}

impl From<LockPart> for DistributedLock {
    /// All locks are kept in memory: of their metadata no more than what is read of a lock.
    fn from(part: LockPart) -> Self {
        let LockPart {
            mut metadata,
            spec,
            mut status,
        } = part;
        // It outlives its holders, and is read anew when one ends.
        if let Some(status) = &mut status {
            status.history = Vec::new();
        }
        metadata.labels = None;
        metadata.owner_references = None;
        if let Some(annotations) = &mut metadata.annotations {
            annotations.retain(|key, _| key == HANDOFF);
        }
        Self {
            metadata,
            spec,
            status,
        }
    }
}

/// Reads a list page by page, and says whether that was all of it.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn list<P>(
    api: &Api<P>,
    chosen: ListParams,
    mut take: impl FnMut(P),
) -> Result<bool, kube::Error>
where
    P: Clone + DeserializeOwned + fmt::Debug,
{
    let mut params = chosen.limit(PAGE);
    for _ in 0..PAGES {
        let ObjectList { metadata, items, .. } = api.list(&params).await?;
        items.into_iter().for_each(&mut take);
        match metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// Changes an object of kind `K`; the answer is its metadata alone.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn patch<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &Patch<impl Serialize + fmt::Debug>,
) -> Result<MetadataPart, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let request = Request::new(K::url_path(&(), Some(namespace)));
    let request = request.patch_metadata(name, &PatchParams::default(), patch);
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}

#[cfg(test)]
mod tests;
