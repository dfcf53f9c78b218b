//! The Kubernetes API of Lockkeeper: the `DistributedLock` resource and the labels and annotations that
//! put a workload's pods behind a lock.

mod cel;
pub mod duration;
pub mod keys;
pub mod lock;
pub mod manifest;
mod validation;

pub use duration::ApiDuration;
pub use lock::{DistributedLock, DistributedLockSpec, DistributedLockStatus};
pub use validation::{DEFAULT_TICK_TIME, InvalidSpec};
