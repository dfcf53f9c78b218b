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
    /// A Deployment.
    DeploymentPart of Deployment {
        /// Its settings.
        spec: Option<WorkloadSpec>,
    }
}

part! {
    /// A ReplicaSet.
    ReplicaSetPart of ReplicaSet {
        /// Its settings.
        spec: Option<WorkloadSpec>,
    }
}

part! {
    /// A StatefulSet.
    StatefulSetPart of StatefulSet {
        /// Its settings.
        spec: Option<WorkloadSpec>,
        /// How it is.
        status: Option<StatefulSetStatus>,
    }
}

part! {
    /// A DaemonSet.
    DaemonSetPart of DaemonSet {
        /// Its settings.
        spec: Option<WorkloadSpec>,
    }
}

part! {
    /// A Job.
    JobPart of Job {
        /// Its settings.
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
    /// A ServiceAccount.
    ServiceAccountPart of ServiceAccount {
        /// What its pods get.
        image_pull_secrets: Option<Vec<LocalObjectReference>>,
    }
}

part! {
    /// An autoscaler.
    AutoscalerPart of HorizontalPodAutoscaler {
        /// Its settings.
        spec: AutoscalerSpec,
    }
}

/// Of the `spec` of any of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// How many pods it wants.
    pub replicas: Option<i32>,
    /// How many a Job wants at once.
    pub parallelism: Option<i32>,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// Whether its rollout rests.
    pub paused: Option<bool>,
    /// `Parallel` or `OrderedReady`.
    pub pod_management_policy: Option<Word>,
    /// How it is rolled out.
    pub update_strategy: UpdateStrategy,
    /// Ordinals of its pods.
    pub ordinals: Option<Ordinals>,
    /// Of its pods.
    pub template: Option<Template>,
}

/// Of `spec.updateStrategy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    pub r#type: Option<Word>,
    /// Of `RollingUpdate`.
    pub rolling_update: Option<RollingUpdate>,
}

/// Of a `RollingUpdate`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RollingUpdate {
    /// The first ordinal that is updated.
    pub partition: Option<i32>,
}

/// Of `spec.ordinals`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Ordinals {
    /// The first one.
    pub start: Option<i32>,
}

/// Of the `status` of a StatefulSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetStatus {
    /// Of the newest template.
    pub update_revision: Option<String>,
}

/// A pod template.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Template {
    /// Of its pods.
    pub spec: Option<TemplatePart>,
}

/// Of the `spec` of a pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplatePart {
    /// Their images.
    pub containers: Option<Vec<Image>>,
    /// Theirs too.
    pub init_containers: Option<Vec<Image>>,
    /// With what images are pulled.
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// The account of its pods.
    pub service_account_name: Option<String>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Image {
    /// Its image.
    pub image: Option<String>,
}

/// Of the `spec` of an autoscaler.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerSpec {
    /// What it scales.
    pub scale_target_ref: Target,
}

/// A workload.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Target {
    /// Its kind.
    pub kind: Word,
    /// Its name.
    pub name: Word,
}

/// Whether an owner is a Deployment of Kubernetes' own, whatever its version: others own ReplicaSets too (Argo Rollouts),
/// and mark them in their own way.
pub fn is_deployment(owner: &OwnerReference) -> bool {
    owner.kind == "Deployment" && owner.api_version.starts_with("apps/")
}
