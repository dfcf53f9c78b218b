//! What users are promised of guarded pods, on two real nodes, with the charts installed by helm.

mod space;
mod workloads;
