//! The workload that a pod belongs to, as far as whoever asks may read it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use lockkeeper_crds::keys;

/// Deployment, ReplicaSet, pod; or CronJob, Job, pod.
const LONGEST_CHAIN: usize = 3;

/// A workload with a lock's name on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// As kubectl names it: `deployment/report`.
    pub name: String,
    /// The lock that its annotation names.
    pub lock: String,
}

/// The first one above the pod that names a lock. Whoever may not read workloads is not told.
pub async fn named_above(client: &Client, namespace: &str, owners: &[OwnerReference]) -> Option<Workload> {
    let mut owners = owners.to_vec();
    for _ in 0..LONGEST_CHAIN {
        let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
        let (group, version) = owner
            .api_version
            .split_once('/')
            .unwrap_or(("", &owner.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &owner.kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let found = api.get_opt(&owner.name).await.ok().flatten()?;
        if let Some(lock) = found.annotations().get(keys::LOCK) {
            return Some(Workload {
                name: format!("{}/{}", owner.kind.to_lowercase(), owner.name),
                lock: lock.clone(),
            });
        }
        owners = found.metadata.owner_references.unwrap_or_default();
    }
    None
}
