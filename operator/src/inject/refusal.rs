//! Why a pod is refused. Each sentence says what is wrong, where, and what would be right.

use lockkeeper_crds::keys::KeyError;

use super::names;

/// A pod that cannot be put behind its lock. It is not admitted at all, so that nothing runs unguarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a pod.
    #[error("the object is not a pod that can be read: {0}")]
    Unreadable(String),
    /// Labels and annotations that cannot be followed.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The guarded container does not exist.
    #[error(
        "lockkeeper.io/container is `{name}`, and the pod has no such container: write one of {containers}"
    )]
    NoContainer {
        /// What is asked for.
        name: String,
        /// What is there.
        containers: String,
    },
    /// Windows.
    #[error(
        "the pod runs on Windows, where Lockkeeper cannot stop an application in time: remove lockkeeper.io/lock"
    )]
    Windows,
    /// `hostPID`.
    #[error(
        "the pod has hostPID: the guard cannot stop every process of the application there; remove spec.hostPID or lockkeeper.io/lock"
    )]
    HostPid,
    /// A name that we need is taken.
    #[error("the pod has a {kind} named `{name}` that is not Lockkeeper's: rename it")]
    NameTaken {
        /// Container or volume.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// A copy of an injected pod that asks for another lock or container than the original.
    #[error(
        "the pod is a copy of one that was injected for another lock or container ({problem}): make it from the manifest that was there before the injection"
    )]
    OtherSidecar {
        /// What it has, and what it should have.
        problem: String,
    },
    /// The sidecar's port is taken.
    #[error("container `{0}` has port {port}, where Lockkeeper answers probes: move it to another port", port = names::PORT)]
    PortTaken(String),
    /// A folder that we mount is taken.
    #[error(
        "container `{container}` mounts something else at {path}, which Lockkeeper needs: mount it elsewhere"
    )]
    MountTaken {
        /// The container.
        container: String,
        /// The path.
        path: &'static str,
    },
    /// The lock's settings are not safe.
    #[error("DistributedLock `{name}` is not valid: {problem}")]
    InvalidLock {
        /// The lock.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// No ensemble.
    #[error(
        "nobody says which ensemble keeps DistributedLock `{0}`: set its spec.zookeeper.connect, or zookeeper.connect of the operator's chart"
    )]
    NoEnsemble(String),
    /// `wrap` without a command.
    #[error(
        "the command of container `{container}` is not known ({problem}): set `command` in the pod{signal}"
    )]
    NoCommand {
        /// The container.
        container: String,
        /// Why not.
        problem: String,
        /// A second way, where there is one.
        signal: &'static str,
    },
    /// `wrap` is not PID 1.
    #[error(
        "the pod shares its process namespace, so the guard cannot be the first process of container `{container}`: remove shareProcessNamespace{signal}"
    )]
    SharedProcesses {
        /// The container.
        container: String,
        /// A second way, where there is one.
        signal: &'static str,
    },
    /// `signal` on a cluster that cannot gate.
    #[error(
        "this cluster cannot gate container `{0}` again after its application was stopped by signals (fileKeyRef, Kubernetes 1.35, is missing): set `command` in the pod, so that it can be wrapped"
    )]
    SignalUnsupported(String),
    /// `signal` and an explicit refusal to share.
    #[error(
        "shareProcessNamespace is false, and the application of container `{0}` can only be stopped by signals: remove it, or set `command` in the pod"
    )]
    NotShared(String),
    /// `signal`, user 0 and a pod that forbids it.
    #[error(
        "nobody says as which user container `{0}` runs, and the pod says runAsNonRoot: set securityContext.runAsUser, so that the guard can be the same user"
    )]
    UnknownUser(String),
    /// `signal`, pausing and probes of the kubelet.
    #[error(
        "DistributedLock `{lock}` pauses the application, and the liveness probe of container `{container}` would restart it meanwhile: set `command` in the pod, so that it can be wrapped, or {field} of the lock to its default"
    )]
    PauseWithProbes {
        /// The lock.
        lock: String,
        /// The container.
        container: String,
        /// Which field of the lock.
        field: &'static str,
    },
    /// A named port that does not exist.
    #[error(
        "the {kind} of container `{container}` names port `{port}`, which the container does not declare: add it to its ports or write the number"
    )]
    UnknownPort {
        /// The container.
        container: String,
        /// Probe or hook.
        kind: &'static str,
        /// The name.
        port: String,
    },
}

impl Refusal {
    /// One word for metrics. A closed set.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "Unreadable",
            Self::Keys(_) => "Keys",
            Self::NoContainer { .. } => "NoContainer",
            Self::Windows => "Windows",
            Self::HostPid => "HostPid",
            Self::NameTaken { .. } | Self::PortTaken(_) | Self::MountTaken { .. } => "NameTaken",
            Self::OtherSidecar { .. } => "OtherSidecar",
            Self::InvalidLock { .. } => "InvalidLock",
            Self::NoEnsemble(_) => "NoEnsemble",
            Self::NoCommand { .. } => "NoCommand",
            Self::SharedProcesses { .. } => "SharedProcesses",
            Self::SignalUnsupported(_) => "SignalUnsupported",
            Self::NotShared(_) => "NotShared",
            Self::UnknownUser(_) => "UnknownUser",
            Self::PauseWithProbes { .. } => "PauseWithProbes",
            Self::UnknownPort { .. } => "UnknownPort",
        }
    }
}
