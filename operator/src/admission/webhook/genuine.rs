//! Whether a review is about a pod that is about to be created in its namespace, for callers that are not known.
//!
//! Any client may send a review of any pod, and read in the answer what a registry says to the pull secrets of
//! another namespace. So pull secrets are used only for what a workload there describes: its uid is random, and a
//! client that may read the workload may read its pods, which contain the same answer.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::kubernetes::names::{is_label, is_subdomain};
use crate::kubernetes::objects::{
    DaemonSetPart, JobPart, ReplicaSetPart, ServiceAccountPart, StatefulSetPart, TemplatePart,
};

/// Whether the pod's workload is there, and has this image and these pull secrets, or its account has them.
///
/// # Errors
/// When the API server does not answer that.
pub(super) async fn is_of_a_workload(
    client: &Client,
    namespace: &str,
    pod: &Value,
    image: &str,
) -> Result<bool, kube::Error> {
    let Some(template) = template(client, namespace, pod).await? else {
        return Ok(false);
    };
    if !has_image(&template, image) {
        return Ok(false);
    }
    let secrets = secrets(&pod["spec"]["imagePullSecrets"]);
    let own = names(template.image_pull_secrets.as_deref());
    if !own.is_empty() {
        return Ok(own == secrets);
    }
    // As the API server copies them (admission plugin `ServiceAccount`).
    let account = template
        .service_account_name
        .unwrap_or_else(|| "default".to_owned());
    if !is_subdomain(&account) {
        return Ok(false);
    }
    let account: Option<ServiceAccountPart> = read(client, namespace, &account).await?;
    Ok(account.is_some_and(|account| names(account.image_pull_secrets.as_deref()) == secrets))
}

/// The pod template of the workload that controls a pod, if it is the one that the pod names.
async fn template(
    client: &Client,
    namespace: &str,
    pod: &Value,
) -> Result<Option<TemplatePart>, kube::Error> {
    let owners = &pod["metadata"]["ownerReferences"];
    let owners: Vec<OwnerReference> = serde_json::from_value(owners.clone()).unwrap_or_default();
    let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) else {
        return Ok(None);
    };
    let name = &owner.name;
    // There is none, and it would be another question.
    if !is_subdomain(name) || !is_label(namespace) {
        return Ok(None);
    }
    let (uid, template) = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "ReplicaSet") => {
            let Some(set) = read::<ReplicaSetPart>(client, namespace, name).await? else {
                return Ok(None);
            };
            (set.uid(), set.spec.and_then(|spec| spec.template))
        }
        ("apps/v1", "StatefulSet") => {
            let Some(set) = read::<StatefulSetPart>(client, namespace, name).await? else {
                return Ok(None);
            };
            (set.uid(), set.spec.and_then(|spec| spec.template))
        }
        ("apps/v1", "DaemonSet") => {
            let Some(set) = read::<DaemonSetPart>(client, namespace, name).await? else {
                return Ok(None);
            };
            (set.uid(), set.spec.and_then(|spec| spec.template))
        }
        ("batch/v1", "Job") => {
            let Some(job) = read::<JobPart>(client, namespace, name).await? else {
                return Ok(None);
            };
            (job.uid(), job.spec.and_then(|spec| spec.template))
        }
        _ => return Ok(None),
    };
    let is_it = uid.is_some_and(|uid| uid == owner.uid);
    Ok(template.filter(|_| is_it).and_then(|template| template.spec))
}

/// `None` if it does not exist.
pub(super) async fn read<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>, kube::Error>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + std::fmt::Debug,
    K: serde::de::DeserializeOwned,
    K::DynamicType: Default,
{
    Api::<K>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await
}

fn has_image(template: &TemplatePart, image: &str) -> bool {
    let inits = template.init_containers.iter().flatten();
    let containers = template.containers.iter().flatten();
    containers
        .chain(inits)
        .any(|container| container.image.as_deref() == Some(image))
}

fn names(secrets: Option<&[LocalObjectReference]>) -> Vec<String> {
    let secrets = secrets.unwrap_or_default();
    secrets.iter().map(|secret| secret.name.clone()).collect()
}

fn secrets(references: &Value) -> Vec<String> {
    let references: Vec<LocalObjectReference> =
        serde_json::from_value(references.clone()).unwrap_or_default();
    names(Some(&references))
}
