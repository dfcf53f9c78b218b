//! The promises of ZooKeeper that the simulated ensemble keeps.

mod clients;
mod nodes;
mod sessions;

use std::time::Duration;

use lockkeeper_lock::Clock;
use lockkeeper_lock::ensemble::{Closed, Connection, Ensemble, EnsembleError, NodeEvent, Op};
use tokio::time::Instant;

use crate::{Client, FakeConnection, Freezable, Options, SkewedClock, World, eventually};

const PATIENCE: Duration = Duration::from_secs(1);
const FOR_EVER: Duration = Duration::from_secs(100_000);
const T: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_secs(1);

fn world() -> World {
    World::new(Options {
        session_timeout: T,
        tick: TICK,
        sync_limit: 10,
        ..Options::default()
    })
}

async fn connect(client: &Client, server: usize) -> FakeConnection {
    client.attach(server, None, PATIENCE).await.unwrap()
}

fn check(path: &str) -> Vec<Op> {
    vec![Op::Check {
        path: path.to_owned(),
    }]
}
