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
#[cfg(feature = "validation")]
mod rules_in_code;
pub mod settings;
mod times;

pub use duration::ApiDuration;
pub use lease::ApiLease;
pub use lock::{DistributedLock, DistributedLockSpec, DistributedLockStatus};
#[cfg(feature = "validation")]
pub use rules_in_code::InvalidSpec;
pub use times::DEFAULT_TICK_TIME;
