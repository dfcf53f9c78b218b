//! `DistributedLock`: its [spec], its [status], and the conditions in it.

mod condition;
mod history;
mod spec;
mod status;
mod zookeeper;

pub use condition::{ConditionType, Reason};
pub use history::{HISTORY_KEPT, HoldEnd, PastHolder};
pub use spec::{
    DeletionPolicy, DistributedLock, DistributedLockSpec, Handoff, LockMode, OnExit, OnLoss, OnSuspect,
};
#[cfg(feature = "validation")]
pub(crate) use spec::{
    MAX_HOLDERS, MAX_LEASE_DURATION, MAX_LOCK_DELAY, MAX_RENEW_INTERVAL, MAX_SESSION_TIMEOUT,
    MIN_LEASE_DURATION, MIN_RENEW_INTERVAL, MIN_SESSION_TIMEOUT,
};
pub use status::{
    DistributedLockStatus, EnsembleStatus, Fenced, HOLDERS_SHOWN, Holder, QUEUE_SHOWN, QueuedContender,
    Survivors, TakenFrom, Trial,
};
#[cfg(feature = "validation")]
pub(crate) use zookeeper::{MAX_TICK_TIME, MIN_TICK_TIME};
pub use zookeeper::{SecretRef, ZooKeeperSpec};
