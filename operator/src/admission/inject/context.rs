//! What is known beside the pod when it is injected.

use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceRequirements;
use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_daemon::log::LogFormat;
use lockkeeper_daemon::token::AppToken;
use lockkeeper_lock::zookeeper::ConnectString;

/// What the cluster can do, found out at the start. See [`crate::admission::webhook::facts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Whether it was found out.
    pub is_known: bool,
    /// `volumes[].image` (KEP-4639; on from Kubernetes 1.35).
    pub image_volumes: bool,
    /// `env[].valueFrom.fileKeyRef` (KEP-3721; on from 1.35).
    pub file_key_ref: bool,
    /// `RestartAllContainers` as the action of a restart rule (KEP-5532; on from 1.36).
    pub restart_all_containers: bool,
}

/// What all sidecars have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct SidecarConfig {
    /// Image of the sidecar: the binary at `/lockkeeper`.
    pub image: String,
    /// Its pull policy; `None` for Kubernetes' default.
    pub pull_policy: Option<String>,
    /// What it asks for in a pod of the class `Burstable`.
    pub resources: ResourceRequirements,
    /// Connect string of the operator's ensemble, for pods; `None` if every lock names its own.
    pub connect: Option<String>,
    /// The same as the operator sees it: a lock may name it so.
    pub own_connect: String,
    /// Whether the Secrets that the operator makes hold a certificate of the pods' own for that ensemble.
    pub has_certificate: bool,
    /// `tickTime` of the operator's ensemble.
    pub tick_time: Duration,
    /// Where locks are in the ensemble, without a slash at its end.
    pub root: String,
    pub log_format: LogFormat,
    /// ACL ids, `digest:USER:HASH`, that may read contenders: the operator's.
    pub readers: Vec<String>,
}

impl SidecarConfig {
    /// Whether a lock is in the operator's ensemble, maybe by its name: as in
    /// [`crate::zookeeper::foreign::Source::of`].
    pub(crate) fn is_own_ensemble(&self, spec: &DistributedLockSpec) -> bool {
        let parse = |connect: &str| connect.parse::<ConnectString>().ok();
        spec.zookeeper.as_ref().is_none_or(|named| {
            named.credentials_secret.is_none() && parse(&named.connect) == parse(&self.own_connect)
        })
    }
}

/// How many pods the owner of a pod wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replicas {
    /// It has no owner, or the owner wants one.
    #[default]
    One,
    /// One, and the owner makes no second pod before this one is ready: a StatefulSet that goes in order.
    InOrder,
    /// More than one.
    Many,
    /// The owner is of a kind that we do not know, or could not be read.
    Unknown,
}

/// What an image says about its first process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// `USER`; empty for root.
    pub user: String,
}

/// Why the configuration of an image is not known. The text follows "is not known", in brackets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageUnknown {
    /// Nothing depended on it.
    #[error("it was not looked up")]
    NotAsked,
    /// Not known at that moment.
    #[error("{0}")]
    Passing(String),
    /// Asking again would be answered in the same way.
    #[error("{0}")]
    Lasting(String),
}

/// Everything that the injection depends on, beside the pod itself.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub cluster: &'a ClusterFacts,
    pub sidecar: &'a SidecarConfig,
    /// Namespace of the pod. Not always in the pod at admission.
    pub namespace: &'a str,
    /// The lock, if it exists already; its defaults otherwise.
    pub lock: Option<&'a DistributedLockSpec>,
    /// ID of the ensemble that the pod is made for.
    pub ensemble: &'a str,
    /// A node that the pod may go to and that could not gate it, and why.
    pub ungated: Option<&'a str>,
    pub replicas: Replicas,
    /// The guarded container's image, or why it could not be looked up.
    pub image: Result<&'a ImageConfig, &'a ImageUnknown>,
    /// The lock's `tlsSecret` has a certificate of the pods' own.
    pub client_certificate: bool,
    /// The token that only this pod's kubelet is to know, for a sidecar that answers the application's probes. Drawn
    /// for this pod.
    pub app_token: &'a AppToken,
}
