//! Labels and annotations that users write, on a workload or on its pod template, and those that we write.

mod request;
mod resources;

pub use request::{Access, Guard, KeyError, LockRequest, Readiness, agreed};
pub use resources::{KINDS, SidecarResources, amount};

/// Group of the API, and prefix of every key.
pub const GROUP: &str = "lockkeeper.io";

/// Name of the `DistributedLock` in the pod's namespace. Label and annotation.
pub const LOCK: &str = "lockkeeper.io/lock";
/// The guarded container; default: that of kubectl, else the first one of the pod template.
pub const CONTAINER: &str = "lockkeeper.io/container";
/// `auto`, `wrap` or `signal`.
pub const GUARD: &str = "lockkeeper.io/guard";
/// `auto`, `holder` or `queued`.
pub const READINESS: &str = "lockkeeper.io/readiness";
/// `write` or `read`.
pub const ACCESS: &str = "lockkeeper.io/access";

/// Requests and limits of the sidecar in these pods, as JSON. An annotation: no label could hold it.
pub const SIDECAR_RESOURCES: &str = "lockkeeper.io/sidecar-resources";

/// Annotation of workloads, `true`: their lock may change while pods run. Read by the API server, in the policy
/// `lockkeeper-workloads` of the chart.
pub const ALLOW_OVERLAP: &str = "lockkeeper.io/allow-overlap";

/// Label of pods: `active` or `standby`. Written by the operator, for Services to select.
pub const ROLE: &str = "lockkeeper.io/role";
/// Annotation of pods: what the webhook injected, so that it knows its own work.
pub const INJECTED: &str = "lockkeeper.io/injected";
/// Annotation of pods: ID of the ensemble that they were made for, and the only one in which their sidecars queue.
pub const ENSEMBLE: &str = "lockkeeper.io/ensemble";
/// Annotation of pods: which settings of their lock they were made with, as a digest.
pub const SETTINGS: &str = "lockkeeper.io/settings";
/// Annotation of pod templates: which keys were copied there from the workload, so that they go with them.
pub const PROPAGATED: &str = "lockkeeper.io/propagated";

/// What users write on workloads and pod templates.
pub const OF_USERS: [&str; 6] = [LOCK, CONTAINER, GUARD, READINESS, ACCESS, SIDECAR_RESOURCES];
/// What users write on workloads, and not on what is in their pods.
pub const OF_WORKLOADS: [&str; 1] = [ALLOW_OVERLAP];
/// What only we write on pods and pod templates.
pub const OURS: [&str; 5] = [ROLE, INJECTED, ENSEMBLE, SETTINGS, PROPAGATED];
