//! The workload that a pod belongs to, as far as the user may read it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt, discovery};
use lockkeeper_crds::keys;

use crate::names::{is_name, is_word};

/// How long the API server may take to describe each. Who asks waits at a terminal, and the answer is complete without.
const PATIENCE: Duration = Duration::from_secs(5);

/// Deployment, ReplicaSet, pod; or CronJob, Job, pod.
const LONGEST_CHAIN: usize = 3;

/// The kinds whose keys the webhook copies to their pods, by their groups.
const FOLLOWED: [(&str, &str); 5] = [
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
];

/// What may be between one of these and its pods.
const BETWEEN: [(&str, &str); 1] = [("apps", "ReplicaSet")];

/// A workload with a lock's name on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    /// As kubectl names it: `deployment/report`.
    pub name: String,
    /// The lock that its annotation names.
    pub lock: String,
    /// Whether its keys are copied to its pods: it is of a kind that we follow.
    pub is_followed: bool,
}

/// What is above a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Above {
    /// No workload that names a lock.
    Nothing,
    /// The topmost one that does: those between have its annotations.
    Named(Workload),
    /// None of those that could be read; this one could not.
    Unreadable(String),
}

/// What is above the pod. The search ends at a workload that the user may not read.
pub(crate) async fn above(client: &Client, namespace: &str, owners: &[OwnerReference]) -> Above {
    let mut owners = owners.to_vec();
    let mut named = Above::Nothing;
    for _ in 0..LONGEST_CHAIN {
        let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) else {
            break;
        };
        let read = tokio::time::timeout(PATIENCE, read(client, namespace, owner));
        let found = match read.await {
            Ok(Ok(Some(found))) => found,
            // What is no part of a namespace, such as the node of a static pod, is not found either.
            Ok(Ok(None)) => break,
            Ok(Err(Unread)) | Err(_) => {
                if named == Above::Nothing {
                    named = Above::Unreadable(called(owner));
                }
                break;
            }
        };
        let lock = found.annotations().get(keys::LOCK);
        if let Some(lock) = lock.or_else(|| found.labels().get(keys::LOCK)) {
            named = Above::Named(Workload {
                name: called(owner),
                lock: lock.clone(),
                is_followed: is_of(&FOLLOWED, owner),
            });
        }
        owners = found.metadata.owner_references.unwrap_or_default();
    }
    named
}

/// The user may not read it, or nobody can say what it is.
struct Unread;

async fn read(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<DynamicObject>, Unread> {
    let (group, version) = group(owner);
    // The author of the pod writes them, and they become parts of requests of the user who asks.
    if !is_name(&owner.name)
        || !is_word(&owner.kind)
        || !is_word(version)
        || !(group.is_empty() || is_name(group))
    {
        return Err(Unread);
    }
    let kind = GroupVersionKind::gvk(group, version, &owner.kind);
    // The plurals of Kubernetes' own are regular; those of others only the API server knows.
    let resource = if is_of(&FOLLOWED, owner) || is_of(&BETWEEN, owner) {
        ApiResource::from_gvk(&kind)
    } else {
        let found = discovery::oneshot::pinned_kind(client, &kind).await;
        found.map_err(|_| Unread)?.0
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    api.get_opt(&owner.name).await.map_err(|_| Unread)
}

fn called(owner: &OwnerReference) -> String {
    format!("{}/{}", owner.kind.to_lowercase(), owner.name)
}

fn group(owner: &OwnerReference) -> (&str, &str) {
    let version = owner.api_version.as_str();
    version.split_once('/').unwrap_or(("", version))
}

fn is_of(kinds: &[(&str, &str)], owner: &OwnerReference) -> bool {
    kinds.contains(&(group(owner).0, owner.kind.as_str()))
}
