//! Admission on a real API server, with the chart's own webhooks, policy and rights, and a real registry.

mod certificates;
mod changing;
mod ensemble;
mod images;
mod injecting;
mod kinds;
mod lookups;
mod meshes;
mod nodes;
mod outage;
mod pods;
mod policy;
mod refusing;
mod rights;
#[path = "../../../operator/tests/support/tls.rs"]
mod tls;
mod uninstalling;
mod warnings;
mod webhooks;
mod workloads;
