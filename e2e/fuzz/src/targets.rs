//! All parsers.

use crate::Target;

mod admission;
mod guard;
mod http;
mod lock;
mod mirror;
mod probes;
mod registry;
mod settings;

/// All parsers, as docs/testing.md lists them.
pub const TARGETS: [Target; 27] = [
    lock::CONTENDER_NAMES,
    lock::CONTENDER_DATA,
    lock::CONTROL_NODE,
    lock::AGREEMENT,
    lock::ENSEMBLE_ID,
    lock::TICK,
    mirror::QUEUE_STATUS,
    settings::ARGUMENTS,
    settings::CREDENTIALS,
    settings::LOCK_SPEC,
    guard::FRAMES,
    guard::STAT,
    guard::MOUNTINFO,
    guard::CGROUPS,
    guard::POST_START,
    http::REQUESTS,
    http::KEEPER_ANSWERS,
    probes::PROBE_SETTINGS,
    probes::PROBE_ANSWERS,
    probes::GRPC_ANSWERS,
    admission::POD_REVIEWS,
    admission::WORKLOAD_REVIEWS,
    registry::REGISTRY_ANSWERS,
    registry::REGISTRY_DOCUMENTS,
    registry::PULL_SECRETS,
    registry::IMAGE_NAMES,
    registry::CERTIFICATES,
];

pub fn named(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

fn texts<const N: usize>(seeds: [&str; N]) -> Vec<Vec<u8>> {
    seeds.map(|seed| seed.as_bytes().to_vec()).into()
}

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"\":",
    "null",
    "true",
    "[{},",
    "{\"\":0},",
    "\\u0000",
    "\\ud800",
    "1e999",
    "[[[[",
];
