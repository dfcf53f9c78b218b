//! What the webhooks ask the API server beside the object itself. Most of it serves convenience or the search for a
//! command: a look-up that fails never leaves a pod unguarded. A pod is refused only if the settings of its lock, or what
//! they name, cannot be read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_daemon::places::Source;
use serde_json::Value;

use super::genuine::{self, read};
use crate::admission::asker::Asker;
use crate::admission::cache::{Cache, Weigh};
use crate::admission::inject::Replicas;
use crate::admission::shared_places::Fair;
use crate::kubernetes::names::{is_label, is_subdomain};
use crate::kubernetes::objects::{
    AutoscalerPart, DESIRED_REPLICAS, JobPart, LockPart, PAGE, ReplicaSetPart, SecretPart, StatefulSetPart,
    is_deployment,
};
use crate::kubernetes::objects::{CERTIFICATE, KEY};

/// Pods of one owner come in bursts. "Many" is kept and may be stale: then standbys are ready, which is right for one
/// pod, too. "One" is not kept: a second pod is the sign that the owner wants more by now.
const OWNER_LIFE: Duration = Duration::from_secs(60);
/// Whether a Secret has a certificate changes with its installation.
const SECRET_LIFE: Duration = Duration::from_secs(30);
/// Three questions in a row, at most, and one to a registry have to fit into the webhook's `timeoutSeconds`.
const PATIENCE: Duration = Duration::from_secs(1);

/// Questions of reviews to the API server at once, in all. Any client may send reviews where callers are not known, and the
/// API server shares its time between users (`APIPriorityAndFairness`): the controllers of the operator are the same user.
const ASKING_IN_ALL: usize = 32;

/// The same, of one namespace and one source of reviews.
const ASKING_OF_ONE: usize = 8;

/// What answers of one kind may take, in bytes: some thousands.
const KEPT: usize = 1 << 20;

/// Longest UID of an owner that is asked for, in bytes; those of an API server are UUIDs.
const LONGEST_UID: usize = 64;

/// Kinds of owners whose pods are counted.
const COUNTED: [&str; 4] = ["ReplicaSet", "StatefulSet", "Job", "DaemonSet"];

/// Autoscalers cause only a warning, so a stale answer does no harm.
const AUTOSCALERS_LIFE: Duration = Duration::from_secs(2);

/// Autoscalers of one workload that are named.
const NAMED: usize = 3;

/// Asks the API server.
#[derive(Debug)]
pub struct Lookups {
    places: Fair,
    replicas: Cache<OwnerQuestion, Replicas, Option<Source>>,
    certificates: Cache<(String, String), bool, Option<Source>>,
    /// By namespace.
    autoscalers: Cache<String, Arc<Vec<Autoscaler>>, Option<Source>>,
}

/// Identifies an owner. Its UID alone does not: any client may write one of another namespace, or another kind, into
/// a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnerQuestion {
    namespace: String,
    kind: &'static str,
    name: String,
    uid: String,
}

#[derive(Debug)]
struct Autoscaler {
    name: String,
    kind: String,
    target: String,
}

/// Why an answer is not kept.
enum NotKept {
    One,
    /// There is no such owner.
    Missing,
    Failed(kube::Error),
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            places: Fair::new(ASKING_IN_ALL, ASKING_OF_ONE),
            replicas: Cache::new(OWNER_LIFE, KEPT),
            certificates: Cache::new(SECRET_LIFE, KEPT),
            autoscalers: Cache::new(AUTOSCALERS_LIFE, KEPT),
        }
    }
}

impl Lookups {
    pub(crate) async fn replicas(&self, client: &Client, asker: &Asker, pod: &Value) -> Replicas {
        let namespace = asker.namespace();
        let references = &pod["metadata"]["ownerReferences"];
        let owners: Vec<OwnerReference> = serde_json::from_value(references.clone()).unwrap_or_default();
        let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) else {
            return Replicas::One;
        };
        // The API server admits such a reference, since it does not look for owners; no such owner exists.
        if owner.uid.len() > LONGEST_UID || !is_subdomain(&owner.name) || !is_label(namespace) {
            return Replicas::Unknown;
        }
        let Some(kind) = COUNTED.into_iter().find(|kind| *kind == owner.kind) else {
            return Replicas::Unknown;
        };
        let question = OwnerQuestion {
            namespace: namespace.to_owned(),
            kind,
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        };
        let asked = self.replicas.get_for(asker.source(), question, async || {
            let _place = self.places.take(asker).await;
            match count(client, namespace, &owner).await {
                Ok(Some(Replicas::One)) => Err(NotKept::One),
                Ok(Some(more)) => Ok(more),
                Ok(None) => Err(NotKept::Missing),
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
            Ok(Err(NotKept::Missing)) | Err(_) => Replicas::Unknown,
        }
    }

    /// Whether the lock's `tlsSecret` has a certificate for the pods themselves. A Secret that the operator may not read has
    /// none for it.
    ///
    /// # Errors
    /// Why it cannot be read now. The pod would be without its certificate for ever.
    pub(crate) async fn client_certificate(
        &self,
        client: &Client,
        asker: &Asker,
        lock: Option<&DistributedLockSpec>,
    ) -> Result<bool, String> {
        let namespace = asker.namespace();
        let Some(name) =
            lock.and_then(|lock| Some(lock.zookeeper.as_ref()?.tls_secret.as_ref()?.name.clone()))
        else {
            return Ok(false);
        };
        if !is_subdomain(&name) || !is_label(namespace) {
            return Ok(false);
        }
        let question = (namespace.to_owned(), name.clone());
        let asked = self.certificates.get_for(asker.source(), question, || async {
            let _place = self.places.take(asker).await;
            let secret = Api::<SecretPart>::namespaced(client.clone(), namespace)
                .get_opt(&name)
                .await?;
            let has = |key| secret.as_ref().is_some_and(|secret| secret.data.has(key));
            Ok::<_, kube::Error>(has(CERTIFICATE) && has(KEY))
        });
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(has)) => Ok(has),
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                tracing::warn!(
                    namespace,
                    secret = name,
                    why = status.message,
                    "The operator may not read the tlsSecret of a lock"
                );
                Ok(false)
            }
            Ok(Err(error)) => Err(format!("its Secret `{name}`: {error}")),
            Err(_) => Err(format!(
                "its Secret `{name}`: the API server has not answered for {PATIENCE:?}"
            )),
        }
    }

    /// Names of the autoscalers of a workload, if they are among the first of its namespace.
    pub(crate) async fn autoscalers(
        &self,
        client: &Client,
        asker: &Asker,
        kind: &str,
        name: &str,
    ) -> Vec<String> {
        let namespace = asker.namespace();
        if !is_label(namespace) {
            return Vec::new();
        }
        let asked = self
            .autoscalers
            .get_for(asker.source(), namespace.to_owned(), || async {
                let _place = self.places.take(asker).await;
                let api = Api::<AutoscalerPart>::namespaced(client.clone(), namespace);
                let list = api.list(&ListParams::default().limit(PAGE)).await?;
                let all = list.items.into_iter().map(|one| Autoscaler {
                    name: one.metadata.name.unwrap_or_default(),
                    kind: one.spec.scale_target_ref.kind.into(),
                    target: one.spec.scale_target_ref.name.into(),
                });
                Ok::<_, kube::Error>(Arc::new(all.collect::<Vec<_>>()))
            });
        let Ok(Ok(all)) = tokio::time::timeout(PATIENCE, asked).await else {
            tracing::warn!(namespace, "Failed to list the autoscalers of a namespace");
            return Vec::new();
        };
        let of_it = all.iter().filter(|one| one.kind == kind && one.target == name);
        of_it.take(NAMED).map(|one| one.name.clone()).collect()
    }

    /// A lock that the watch has not shown yet; `None` if it does not exist.
    ///
    /// # Errors
    /// Why it cannot be read. Its pod would get the defaults in the place of its settings.
    pub(crate) async fn lock(
        &self,
        client: &Client,
        asker: &Asker,
        name: &str,
    ) -> Result<Option<DistributedLock>, String> {
        let namespace = asker.namespace();
        if !is_label(namespace) {
            return Err("the review names no namespace".to_owned());
        }
        let asked = async {
            let _place = self.places.take(asker).await;
            let api = Api::<LockPart>::namespaced(client.clone(), namespace);
            api.get_opt(name).await
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(found) => found
                .map(|found| found.map(DistributedLock::from))
                .map_err(|error| error.to_string()),
            Err(_) => Err(format!("the API server has not answered for {PATIENCE:?}")),
        }
    }

    /// Whether a pod's workload is there, and has this image and these pull secrets, or its account has them.
    pub(crate) async fn is_of_a_workload(
        &self,
        client: &Client,
        asker: &Asker,
        pod: &Value,
        image: &str,
    ) -> bool {
        let asked = async {
            let _place = self.places.take(asker).await;
            genuine::is_of_a_workload(client, asker.namespace(), pod, image).await
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(is)) => is,
            Ok(Err(error)) => {
                tracing::warn!(%error, namespace = asker.namespace(), "Failed to read the workload of a pod");
                false
            }
            Err(_) => false,
        }
    }
}

/// What an owner says; `None` if there is no such owner.
async fn count(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<Replicas>, kube::Error> {
    let name = &owner.name;
    let mut one = Replicas::One;
    let wanted = match owner.kind.as_str() {
        "ReplicaSet" => {
            let Some(set) = read::<ReplicaSetPart>(client, namespace, name).await? else {
                return Ok(None);
            };
            // Another controller (an Argo Rollout) makes more of them in its own way, and says nowhere how many.
            if !set.owner_references().iter().all(is_deployment) {
                return Ok(Some(Replicas::Unknown));
            }
            let own = set.spec.as_ref().and_then(|spec| spec.replicas);
            own.max(desired(set.metadata.annotations.as_ref()))
        }
        "StatefulSet" => {
            let Some(set) = read::<StatefulSetPart>(client, namespace, name).await? else {
                return Ok(None);
            };
            let spec = set.spec.as_ref();
            // The API server's default is OrderedReady.
            let policy = spec.and_then(|spec| spec.pod_management_policy.as_ref());
            if policy.is_none_or(|policy| policy.0 != "Parallel") {
                one = Replicas::InOrder;
            }
            spec.and_then(|spec| spec.replicas)
        }
        "Job" => {
            let Some(job) = read::<JobPart>(client, namespace, name).await? else {
                return Ok(None);
            };
            job.spec.and_then(|spec| spec.parallelism)
        }
        "DaemonSet" => return Ok(Some(Replicas::Many)),
        _ => return Ok(Some(Replicas::Unknown)),
    };
    // The API server's default of all three fields is 1.
    Ok(Some(if wanted.unwrap_or(1) > 1 {
        Replicas::Many
    } else {
        one
    }))
}

impl Weigh for OwnerQuestion {
    fn weight(&self) -> usize {
        self.namespace.len() + self.name.len() + self.uid.len()
    }
}

impl Weigh for Arc<Vec<Autoscaler>> {
    fn weight(&self) -> usize {
        let words = self.iter().flat_map(|one| [&one.name, &one.kind, &one.target]);
        self.len() * size_of::<Autoscaler>() + words.map(String::len).sum::<usize>()
    }
}

fn desired(annotations: Option<&BTreeMap<String, String>>) -> Option<i32> {
    annotations?.get(DESIRED_REPLICAS)?.parse().ok()
}
