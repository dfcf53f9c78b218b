//! The Kubernetes API of Lockkeeper: the `DistributedLock` resource and the labels and annotations that
//! put a workload's pods behind a lock.

#![warn(missing_docs)]

mod cel;
pub mod definition;
mod duration;
pub mod keys;
mod lease;
pub mod lock;
pub mod manifest;
mod reference;
pub mod settings;
mod times;
#[cfg(feature = "validation")]
mod validation;

pub use duration::ApiDuration;
pub use lease::ApiLease;
pub use lock::{DistributedLock, DistributedLockSpec, DistributedLockStatus};
pub use times::DEFAULT_TICK_TIME;
#[cfg(feature = "validation")]
pub use validation::InvalidSpec;
