//! What is used of what makes pods: how many it wants, and of its template images and pull secrets.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{LocalObjectReference, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use serde::Deserialize;

use super::metadata::part;
use super::words::Word;

part! {
    DeploymentPart of Deployment {
        spec: Option<WorkloadSpec>,
    }
}

part! {
    ReplicaSetPart of ReplicaSet {
        spec: Option<WorkloadSpec>,
    }
}

part! {
    StatefulSetPart of StatefulSet {
        spec: Option<WorkloadSpec>,
        status: Option<StatefulSetStatus>,
    }
}

part! {
    DaemonSetPart of DaemonSet {
        spec: Option<WorkloadSpec>,
    }
}

part! {
    JobPart of Job {
        spec: Option<WorkloadSpec>,
    }
}

part! {
    /// A revision of a DaemonSet, without what it was.
    ControllerRevisionPart of ControllerRevision {
        /// The higher, the newer.
        revision: i64,
    }
}

part! {
    ServiceAccountPart of ServiceAccount {
        /// What its pods get.
        image_pull_secrets: Option<Vec<LocalObjectReference>>,
    }
}

part! {
    AutoscalerPart of HorizontalPodAutoscaler {
        spec: AutoscalerSpec,
    }
}

/// Of the `spec` of any of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WorkloadSpec {
    pub(crate) replicas: Option<i32>,
    /// How many a Job wants at once.
    pub(crate) parallelism: Option<i32>,
    pub(crate) selector: LabelSelector,
    pub(crate) paused: Option<bool>,
    /// `Parallel` or `OrderedReady`.
    pub(crate) pod_management_policy: Option<Word>,
    pub(crate) update_strategy: UpdateStrategy,
    pub(crate) ordinals: Option<Ordinals>,
    pub(crate) template: Option<Template>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    pub(crate) r#type: Option<Word>,
    pub(crate) rolling_update: Option<RollingUpdate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RollingUpdate {
    /// The first ordinal that is updated.
    pub(crate) partition: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Ordinals {
    pub(crate) start: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatefulSetStatus {
    /// Of the newest template.
    pub(crate) update_revision: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Template {
    pub(crate) spec: Option<TemplatePart>,
}

/// Of the `spec` of a pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TemplatePart {
    pub(crate) containers: Option<Vec<Image>>,
    pub(crate) init_containers: Option<Vec<Image>>,
    pub(crate) image_pull_secrets: Option<Vec<LocalObjectReference>>,
    pub(crate) service_account_name: Option<String>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Image {
    pub(crate) image: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoscalerSpec {
    pub(crate) scale_target_ref: Target,
}

/// A workload.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Word,
    pub(crate) name: Word,
}

/// Whether an owner is a Deployment of Kubernetes' own, whatever its version: others own ReplicaSets too (Argo Rollouts),
/// and mark them in their own way.
pub(crate) fn is_deployment(owner: &OwnerReference) -> bool {
    owner.kind == "Deployment" && owner.api_version.starts_with("apps/")
}
