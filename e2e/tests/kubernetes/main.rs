//! The promises about guarded pods, on two real nodes, with the charts installed by helm.

mod applications;
mod certificates;
mod charts;
mod containers;
mod documents;
mod flood;
mod moving;
mod nodes;
mod pausing;
mod pods;
mod probes;
mod processes;
mod rendering;
mod rollouts;
mod servers;
mod survivors;
mod tenants;
mod unguarded;
mod workloads;
