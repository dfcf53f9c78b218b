//! Why a pod is refused. Each sentence says what is wrong, where, and what would be right.

use lockkeeper_crds::keys::KeyError;

use super::names;

/// A pod that cannot be put behind its lock. It is not admitted at all, so that nothing runs unguarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the object is not a pod that can be read: {0}")]
    Unreadable(String),
    /// Labels and annotations that cannot be followed.
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(
        "lockkeeper.io/container is `{name}`, and the pod has no such container: write one of {containers}"
    )]
    NoContainer { name: String, containers: String },
    /// The container that was taken is not the application's.
    #[error(
        "container `{container}` is the proxy of a mesh, and the application beside it would run without the lock: write one of {others} into lockkeeper.io/container"
    )]
    Proxy {
        /// What was taken, by its place or by its name.
        container: String,
        others: String,
    },
    #[error(
        "the pod runs on Windows, where Lockkeeper cannot stop an application in time: remove lockkeeper.io/lock"
    )]
    Windows,
    #[error(
        "the pod has hostPID: the guard cannot stop every process of the application there; remove spec.hostPID or lockkeeper.io/lock"
    )]
    HostPid,
    /// A name that we need is taken.
    #[error("the pod has a {kind} named `{name}` that is not Lockkeeper's: rename it")]
    NameTaken {
        /// Container, volume or variable.
        kind: &'static str,
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
    #[error("container `{0}` has port {port}, where Lockkeeper answers probes: move it to another port", port = names::PORT)]
    PortTaken(String),
    /// A folder that we mount is taken.
    #[error(
        "container `{container}` mounts something at {path}: mount it outside of /lockkeeper and /run/lockkeeper (also by /var/run), where Lockkeeper's own parts are, at a path without `..`"
    )]
    MountTaken { container: String, path: String },
    #[error("DistributedLock `{name}` is not valid: {problem}")]
    InvalidLock { name: String, problem: String },
    #[error(
        "the settings of DistributedLock `{lock}` cannot be read at the moment ({problem}), so the pod is refused until they are: its controller tries again"
    )]
    LockUnknown { lock: String, problem: String },
    #[error(
        "no setting says which ensemble keeps DistributedLock `{0}`: set its spec.zookeeper.connect, or zookeeper.connect of the operator's chart"
    )]
    NoEnsemble(String),
    /// The ensemble that the operator reaches is not the lock's.
    #[error("DistributedLock `{lock}` admits no pod now: {problem}")]
    EnsembleChanged {
        lock: String,
        /// As in its status.
        problem: String,
    },
    /// The operator may not talk to the ensemble.
    #[error("DistributedLock `{lock}` admits no pod: {problem}")]
    EnsembleNotAllowed {
        lock: String,
        /// As in its status.
        problem: String,
    },
    #[error(
        "the operator has not reached the ensemble of DistributedLock `{0}` yet, and cannot say which one it is: try again, and see the conditions of the lock"
    )]
    EnsembleUnknown(String),
    #[error(
        "the command of container `{container}` is not known ({problem}): set `command` in the pod{signal}"
    )]
    NoCommand {
        container: String,
        problem: String,
        /// A second way, or why there is none.
        signal: String,
    },
    /// How the container can be guarded is not known at this moment.
    #[error(
        "the command of container `{container}` cannot be determined at the moment ({problem}). The pod is refused for now, and its controller tries again. To avoid this, set `command` in the pod; or set lockkeeper.io/guard to `signal`, and securityContext.runAsUser"
    )]
    ImageUnknown { container: String, problem: String },
    /// `wrap` is not PID 1.
    #[error(
        "the pod shares its process namespace, so the guard cannot be the first process of container `{container}`: remove shareProcessNamespace{signal}"
    )]
    SharedProcesses {
        container: String,
        /// A second way, or why there is none.
        signal: String,
    },
    /// `signal` where a kubelet could start the container without the lock.
    #[error(
        "container `{container}` cannot be guarded by signals, since {why}; or set `command` in the pod, so that it can be wrapped"
    )]
    SignalUnsupported { container: String, why: String },
    /// `signal` and an explicit refusal to share.
    #[error(
        "shareProcessNamespace is false, and the application of container `{0}` can only be stopped by signals: remove shareProcessNamespace, or set `command` in the pod"
    )]
    NotShared(String),
    /// `signal`, user 0 and a pod that forbids it.
    #[error(
        "the user of container `{0}` is not set, and the pod has runAsNonRoot: set securityContext.runAsUser, so that the guard can be the same user"
    )]
    UnknownUser(String),
    /// `signal`, pausing and probes of the kubelet.
    #[error(
        "DistributedLock `{lock}` pauses the application, and the liveness probe of container `{container}` would restart it meanwhile: set `command` in the pod, so that it can be wrapped, or {field} of the lock to its default"
    )]
    PauseWithProbes {
        lock: String,
        container: String,
        /// Which field of the lock.
        field: &'static str,
    },
    /// A named port that does not exist.
    #[error(
        "the {kind} of container `{container}` names port `{port}`, which the container does not declare: add it to its ports or write the number"
    )]
    UnknownPort {
        container: String,
        /// Probe or hook.
        kind: &'static str,
        /// The name.
        port: String,
    },
}

/// One word for each reason.
macro_rules! reasons {
    ($($reason:ident),+ $(,)?) => {
        impl Refusal {
            /// All of them.
            pub(crate) const REASONS: &[&str] = &[$(stringify!($reason)),+];

            /// One word for metrics, out of [`Self::REASONS`].
            pub(crate) fn reason(&self) -> &'static str {
                match self {
                    $(Self::$reason { .. } => stringify!($reason)),+
                }
            }
        }
    };
}

reasons! {
    Unreadable,
    Keys,
    NoContainer,
    Proxy,
    Windows,
    HostPid,
    NameTaken,
    PortTaken,
    MountTaken,
    OtherSidecar,
    InvalidLock,
    LockUnknown,
    NoEnsemble,
    EnsembleChanged,
    EnsembleNotAllowed,
    EnsembleUnknown,
    NoCommand,
    ImageUnknown,
    SharedProcesses,
    SignalUnsupported,
    NotShared,
    UnknownUser,
    PauseWithProbes,
    UnknownPort,
}
