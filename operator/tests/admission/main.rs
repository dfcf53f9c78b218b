//! Admission on a real API server, with the chart's own webhooks, policy and rights, and a real registry.

mod certificates;
mod changing;
mod ensemble;
mod images;
mod injecting;
mod kinds;
mod lookups;
mod meshes;
mod operator;
mod outage;
mod pods;
mod policy;
mod refusing;
mod rights;
mod stage;
#[path = "../support/tls.rs"]
mod tls;
mod uninstalling;
mod warnings;
mod workloads;
#[path = "../cluster/world.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the controllers, which use all of it"
)]
mod world;
