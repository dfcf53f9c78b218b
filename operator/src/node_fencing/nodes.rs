//! Reads nodes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::machine::Machine;

/// How long the API server may take to describe a node.
const PATIENCE: Duration = Duration::from_secs(5);

/// For how long an answer is shared: the locks with contenders on one machine all ask when that goes, and look again
/// while the queues change.
const SHARED: Duration = Duration::from_secs(1);

/// What the API server says of a node: `None` if there is none of this name. Or why that is not known.
pub(super) type Read = Result<Option<Arc<Machine>>, String>;

#[derive(Clone)]
pub(crate) struct Nodes(Api<Node>);

/// What the API server says of one node, for all that ask within a second. One of them reads, and the others wait for it.
#[derive(Debug, Default)]
pub(super) struct Answer(Mutex<Option<(Instant, Read)>>);

// === impl Nodes ===

impl Nodes {
    pub(crate) fn new(client: Client) -> Self {
        Self(Api::all(client))
    }

    /// A node as it is now: the API server asks its store.
    pub(super) async fn read(&self, name: &str) -> Read {
        let read = match tokio::time::timeout(PATIENCE, self.0.get_opt(name)).await {
            Ok(Ok(node)) => return Ok(node.as_ref().map(Machine::of).map(Arc::new)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the API server gave no answer within {PATIENCE:?}"),
        };
        tracing::warn!(error = read, node = name, "Failed to read a node; trying again");
        Err(read)
    }
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nodes")
    }
}

// === impl Answer ===

impl Answer {
    /// A node as it is now, or was less than a second ago.
    pub(super) async fn get(&self, nodes: &Nodes, name: &str) -> Read {
        let mut last = self.0.lock().await;
        if let Some((at, read)) = &*last
            && at.elapsed() < SHARED
        {
            return read.clone();
        }
        let read = nodes.read(name).await;
        *last = Some((Instant::now(), read.clone()));
        read
    }
}
