//! What the webhooks ask the API server beside the object itself. All of it is about convenience or
//! about finding a command: nothing that is not found leaves a pod unguarded.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client};
use lockkeeper_crds::DistributedLockSpec;
use serde_json::Value;

use super::cache::Cache;
use crate::inject::Replicas;

/// Pods of one owner come in bursts. That it wants many is kept, and may be old: standbys are ready then,
/// which is right for one pod, too. That it wants one is not: one pod is no burst, and a second one is the
/// sign that it wants more by now.
const OWNER_LIFE: Duration = Duration::from_secs(60);
/// Whether a Secret has a certificate changes with its installation.
const SECRET_LIFE: Duration = Duration::from_secs(30);
/// A webhook has five seconds in all, three of which a registry may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many pods a Deployment wants, on each of its ReplicaSets (`pkg/controller/deployment/util`): during
/// a rollout a ReplicaSet itself wants fewer.
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";

/// Asks the API server.
#[derive(Debug)]
pub struct Lookups {
    replicas: Cache<String, Replicas>,
    certificates: Cache<(String, String), bool>,
}

/// Why an answer is not kept.
enum NotKept {
    One,
    Failed(kube::Error),
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            replicas: Cache::new(OWNER_LIFE),
            certificates: Cache::new(SECRET_LIFE),
        }
    }
}

impl Lookups {
    /// How many siblings a pod has.
    pub async fn replicas(&self, client: &Client, namespace: &str, pod: &Value) -> Replicas {
        let references = &pod["metadata"]["ownerReferences"];
        let owners: Vec<OwnerReference> = serde_json::from_value(references.clone()).unwrap_or_default();
        let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) else {
            return Replicas::One;
        };
        let asked = self.replicas.get(owner.uid.clone(), async || {
            match count(client, namespace, &owner).await {
                Ok(Replicas::One) => Err(NotKept::One),
                Ok(more) => Ok(more),
                Err(error) => Err(NotKept::Failed(error)),
            }
        });
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(replicas)) => replicas,
            Ok(Err(NotKept::One)) => Replicas::One,
            Ok(Err(NotKept::Failed(error))) => {
                tracing::warn!(%error, namespace, owner.kind, owner.name, "Failed to read the owner of a pod");
                Replicas::Unknown
            }
            Err(_) => Replicas::Unknown,
        }
    }

    /// Whether the lock's `tlsSecret` has a certificate for the pods themselves.
    pub async fn client_certificate(
        &self,
        client: &Client,
        namespace: &str,
        lock: Option<&DistributedLockSpec>,
    ) -> bool {
        let Some(name) =
            lock.and_then(|lock| Some(lock.zookeeper.as_ref()?.tls_secret.as_ref()?.name.clone()))
        else {
            return false;
        };
        let question = (namespace.to_owned(), name.clone());
        let asked = self.certificates.get(question, || async {
            let secret = Api::<Secret>::namespaced(client.clone(), namespace)
                .get_opt(&name)
                .await?;
            let data = secret.and_then(|secret| secret.data).unwrap_or_default();
            Ok::<_, kube::Error>(data.contains_key("tls.crt") && data.contains_key("tls.key"))
        });
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(has)) => has,
            Ok(Err(error)) => {
                tracing::warn!(%error, namespace, secret = name, "Failed to read the tlsSecret of a lock");
                false
            }
            Err(_) => false,
        }
    }

    /// Names of the autoscalers of a workload.
    pub async fn autoscalers(&self, client: &Client, namespace: &str, kind: &str, name: &str) -> Vec<String> {
        let api = Api::<HorizontalPodAutoscaler>::namespaced(client.clone(), namespace);
        let params = ListParams::default();
        let listed = tokio::time::timeout(PATIENCE, api.list(&params)).await;
        let Ok(Ok(list)) = listed else {
            tracing::warn!(namespace, "Failed to list the autoscalers of a namespace");
            return Vec::new();
        };
        let targets = |autoscaler: &HorizontalPodAutoscaler| {
            let target = &autoscaler.spec.scale_target_ref;
            target.kind == kind && target.name == name
        };
        list.items
            .into_iter()
            .filter(targets)
            .filter_map(|autoscaler| autoscaler.metadata.name)
            .collect()
    }
}

async fn count(client: &Client, namespace: &str, owner: &OwnerReference) -> Result<Replicas, kube::Error> {
    let name = &owner.name;
    let wanted = match owner.kind.as_str() {
        "ReplicaSet" => {
            let set = Api::<ReplicaSet>::namespaced(client.clone(), namespace)
                .get(name)
                .await?;
            let own = set.spec.and_then(|spec| spec.replicas);
            own.max(desired(set.metadata.annotations.as_ref()))
        }
        "StatefulSet" => {
            let set = Api::<StatefulSet>::namespaced(client.clone(), namespace)
                .get(name)
                .await?;
            set.spec.and_then(|spec| spec.replicas)
        }
        "Job" => {
            let job = Api::<Job>::namespaced(client.clone(), namespace)
                .get(name)
                .await?;
            job.spec.and_then(|spec| spec.parallelism)
        }
        "DaemonSet" => return Ok(Replicas::Many),
        _ => return Ok(Replicas::Unknown),
    };
    // The API server's default of all three fields is 1.
    Ok(if wanted.unwrap_or(1) > 1 {
        Replicas::Many
    } else {
        Replicas::One
    })
}

fn desired(annotations: Option<&BTreeMap<String, String>>) -> Option<i32> {
    annotations?.get(DESIRED_REPLICAS)?.parse().ok()
}
