//! Labels and annotations: those that users write, on a workload or on its pod template, and those that we write.

mod request;
mod resources;

pub use request::{Access, Guard, KeyError, LockRequest, Readiness, agreed};
pub use resources::{SidecarResources, amount};

/// Group of the API, and prefix of every key.
pub const GROUP: &str = "lockkeeper.io";

/// Name of the sidecar's container, and of its port.
pub const SIDECAR: &str = "lockkeeper";
/// Variable of the sidecar with the `leaseDuration` that its pod was created with.
pub const LEASE_DURATION: &str = "LOCKKEEPER_LEASE_DURATION";

/// Name of the `DistributedLock` in the pod's namespace. Label and annotation.
pub const LOCK: &str = "lockkeeper.io/lock";
/// The guarded container. Default: kubectl's default container, or the first one of the pod template.
pub const CONTAINER: &str = "lockkeeper.io/container";
/// `auto`, `wrap` or `signal`.
pub const GUARD: &str = "lockkeeper.io/guard";
/// `auto`, `holder` or `queued`.
pub const READINESS: &str = "lockkeeper.io/readiness";
/// `write` or `read`.
pub const ACCESS: &str = "lockkeeper.io/access";

/// Requests and limits of the sidecar in these pods, as JSON. Only an annotation: the value does not fit into a label.
pub(crate) const SIDECAR_RESOURCES: &str = "lockkeeper.io/sidecar-resources";

/// Annotation of workloads, `true`: their lock may change while pods run. The API server reads it, in the policy
/// `lockkeeper-workloads` of the chart.
pub(crate) const ALLOW_OVERLAP: &str = "lockkeeper.io/allow-overlap";

/// Annotation of locks with which a user asks for a handoff: name of a pod that waits, or empty for the next in the
/// queue. The operator removes it after it has asked the holder, or refused.
pub const HANDOFF: &str = "lockkeeper.io/handoff";

/// Label of namespaces. If it is `disabled`, the API server does not call the webhooks for objects of the namespace
/// (the chart's `webhook.yaml`).
pub const INJECTION: &str = "lockkeeper.io/injection";

/// Finalizer of locks: the operator removes their nodes in ZooKeeper before the objects go.
pub const FINALIZER: &str = "lockkeeper.io/queue";

/// Annotation of a namespace's Secret `lockkeeper-zookeeper` with which a user asks for a new identity. The operator
/// removes it after it has created one.
pub const ROTATE: &str = "lockkeeper.io/rotate";

/// Annotation of the Secret with the webhook's certificate: when the operator created it, in seconds since 1970.
pub const MADE_AT: &str = "lockkeeper.io/made-at";

/// Label of pods: `active` or `standby`. The operator writes it, for Services to select.
pub const ROLE: &str = "lockkeeper.io/role";
/// Annotation of pods: what the webhook injected, so that it recognises its own work.
pub const INJECTED: &str = "lockkeeper.io/injected";
/// Annotation of pods: ID of the ensemble that they were created for. Their sidecars queue only there.
pub const ENSEMBLE: &str = "lockkeeper.io/ensemble";
/// Annotation of pods: a digest of the settings of the lock that they were created with.
pub const SETTINGS: &str = "lockkeeper.io/settings";
/// Annotation of pod templates: the keys that were copied from the workload. They are removed together with those.
pub const PROPAGATED: &str = "lockkeeper.io/propagated";

/// Keys that users write on workloads and pod templates.
pub const OF_USERS: [&str; 6] = [LOCK, CONTAINER, GUARD, READINESS, ACCESS, SIDECAR_RESOURCES];
/// Keys that users write only on workloads.
pub const OF_WORKLOADS: [&str; 1] = [ALLOW_OVERLAP];
/// Keys that only we write, on pods and pod templates.
pub const OURS: [&str; 5] = [ROLE, INJECTED, ENSEMBLE, SETTINGS, PROPAGATED];

/// Every key of the group, on any object.
pub const ALL: [&str; 17] = [
    LOCK,
    CONTAINER,
    GUARD,
    READINESS,
    ACCESS,
    SIDECAR_RESOURCES,
    ALLOW_OVERLAP,
    HANDOFF,
    INJECTION,
    FINALIZER,
    ROTATE,
    MADE_AT,
    ROLE,
    INJECTED,
    ENSEMBLE,
    SETTINGS,
    PROPAGATED,
];
