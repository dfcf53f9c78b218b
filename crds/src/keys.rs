//! Labels and annotations that users write, on a workload or on its pod template, and those that we write.

mod request;

pub use request::{Access, Guard, KeyError, LockRequest, Readiness, agreed};

/// Group of the API, and prefix of every key.
pub const GROUP: &str = "lockkeeper.io";

/// Name of the `DistributedLock` in the pod's namespace. Label and annotation.
pub const LOCK: &str = "lockkeeper.io/lock";
/// The guarded container; default: the first one.
pub const CONTAINER: &str = "lockkeeper.io/container";
/// `auto`, `wrap` or `signal`.
pub const GUARD: &str = "lockkeeper.io/guard";
/// `auto`, `holder` or `queued`.
pub const READINESS: &str = "lockkeeper.io/readiness";
/// `write` or `read`.
pub const ACCESS: &str = "lockkeeper.io/access";

/// Label of pods: `active` or `standby`. Written by the operator, for Services to select.
pub const ROLE: &str = "lockkeeper.io/role";
/// Annotation of pods: what the webhook injected, so that it knows its own work.
pub const INJECTED: &str = "lockkeeper.io/injected";
/// Annotation of pod templates: which keys were copied there from the workload, so that they go with them.
pub const PROPAGATED: &str = "lockkeeper.io/propagated";

/// What users write on workloads and pod templates.
pub const OF_USERS: [&str; 5] = [LOCK, CONTAINER, GUARD, READINESS, ACCESS];
/// What only we write on pods and pod templates.
pub const OURS: [&str; 3] = [ROLE, INJECTED, PROPAGATED];
