//! Runs a `zookeeper-client` on a host of the harness.

use std::future::Future;
use std::io;
use std::time::Duration;

use spawns_core::{Spawn, Task};
use zookeeper_client::{Client, Connector};

use crate::network::Host;

/// Makes plain clients that tolerate a busy machine. A client gives up after two fifths of its session
/// timeout without an answer (`zookeeper-client`), so this is the longest timeout that servers with a tick of
/// 1 s grant.
pub fn connector() -> Connector {
    Client::connector().with_session_timeout(Duration::from_secs(20))
}

/// Runs a future on a thread of its own on `host`, with a runtime of its own, and returns its result.
///
/// Clients that it makes connect from that host. They end with it.
pub fn block_on<T, F>(host: &Host, work: impl FnOnce() -> F + Send) -> io::Result<T>
where
    T: Send,
    F: Future<Output = T>,
{
    host.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(with_clients(work)))
    })?
}

/// A future in which clients may be made, for a runtime of one thread.
pub async fn with_clients<F: Future>(work: impl FnOnce() -> F) -> F::Output {
    // The client spawns the task of its session with this, on the same thread.
    let spawner = OnTokio;
    let _scope = spawns_core::enter(&spawner);
    work().await
}

struct OnTokio;

impl Spawn for OnTokio {
    fn spawn(&self, task: Task) {
        tokio::spawn(Box::into_pin(task.future));
    }
}
