//! The application's own probes and hooks, as a kubelet sees them through the keeper.

mod application;
mod grpc;
mod handlers;
mod hooks;
mod startup;
#[cfg(feature = "tls")]
mod tls;
mod token;

#[path = "../support/served.rs"]
mod served;

use std::path::Path;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::probes::AppProbes;
use lockkeeper_sidecar::probes::health::Running;
use served::{Served, body};

/// What only the kubelet knows.
const TOKEN: &str = "1M5vYmFyYmF6cXV4cXV1eA_-";

/// A keeper with these probes; its application does not run.
fn serve(directory: &Path, json: &str) -> Served {
    Served::start_behind(directory, AppProbes::parse(Some(json), None).unwrap(), TOKEN)
}

/// The application was started now, for the `start`th time.
fn run(served: &Served, start: u64) {
    let since = BootInstant::now();
    served.app.send_replace(Some(Running { start, since }));
}

/// Status and body of a probe that the kubelet asks.
fn ask(served: &Served, kind: &str) -> (u16, String) {
    ask_at(served, &format!("/app/{TOKEN}/{kind}"))
}

/// Status and body of what is at a path.
fn ask_at(served: &Served, path: &str) -> (u16, String) {
    let answer = served.probe(path);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("{answer}")),
        body(&answer).to_owned(),
    )
}

fn status(served: &Served, kind: &str) -> u16 {
    ask(served, kind).0
}
