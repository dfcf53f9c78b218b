//! Labels and annotations that users write, on a workload or on its pod template, and those that we write.

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
