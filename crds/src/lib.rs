//! The Kubernetes API of Lockkeeper: the `DistributedLock` resource and the labels and annotations that
//! put a workload's pods behind a lock.

pub mod keys;
