//! What users are promised of guarded pods, on two real nodes, with the charts installed by helm.

mod applications;
mod containers;
mod pods;
mod processes;
mod space;
mod workloads;
