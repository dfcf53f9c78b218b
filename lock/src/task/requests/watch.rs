//! Reads a node and watches it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::ensemble::{Connection, EnsembleError, EnsembleResult, Node, NodeEvent};
use crate::token::FencingToken;

/// A node with a boxed watch.
pub(in crate::task) type Watched = EnsembleResult<(Node, BoxFuture<'static, NodeEvent>)>;

pub(in crate::task) async fn watch<C: Connection>(connection: Arc<C>, path: String) -> Watched {
    let (node, event) = connection.watch_node(&path).await?;
    // The event does not keep the connection alive: when the connection ends, the request is forgotten.
    Ok((node, event.boxed()))
}

/// Time after which a child that could not be read is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// Waits until a child that we may not read is gone ([`NodeEvent::Deleted`]), or it is time to try to read it again
/// ([`NodeEvent::Changed`]). Servers tell such a client neither of its changes nor of its end (ZOOKEEPER-4799), but they do
/// tell that its parent has other children. Nobody is told of rights.
///
/// # Errors
/// When the parent cannot be watched: then nothing is known of the child.
pub(in crate::task) async fn until_gone_or_changed<C: Connection>(
    connection: Arc<C>,
    root: String,
    name: String,
) -> EnsembleResult<NodeEvent> {
    let (children, event) = match connection.watch_children(&root).await {
        Err(EnsembleError::NoNode) => return Ok(NodeEvent::Deleted),
        found => found?,
    };
    if !children.names.contains(&name) {
        return Ok(NodeEvent::Deleted);
    }
    Ok(tokio::time::timeout(AGAIN, event)
        .await
        .unwrap_or(NodeEvent::Changed))
}

/// Reads and watches the control node; creates it if it is missing and we may create it.
pub(in crate::task) async fn watch_control<C: Connection>(
    connection: Arc<C>,
    path: String,
    is_provisioned: bool,
) -> Watched {
    match watch(Arc::clone(&connection), path.clone()).await {
        Err(EnsembleError::NoNode) if is_provisioned => watch_missing_control(connection, path).await,
        Err(EnsembleError::NoNode) => {
            connection.make_path(&path, Vec::new()).await?;
            watch(connection, path).await
        }
        answer => answer,
    }
}

/// The transaction number of a node that does not exist.
pub(in crate::task) const NOT_THERE: FencingToken = FencingToken(0);

/// A missing control node counts as empty until a client creates it.
async fn watch_missing_control<C: Connection>(connection: Arc<C>, path: String) -> Watched {
    match connection.watch_creation(&path).await? {
        Some(made) => {
            let nothing = Node {
                data: Vec::new(),
                czxid: NOT_THERE,
                version: 0,
                owner: 0,
            };
            Ok((nothing, made))
        }
        None => watch(connection, path).await,
    }
}
