//! Children of the lock root that are not contenders of a known kind.
//!
//! A client of an unknown kind may stand in the queue by rules of its own: its name does not show whether it comes
//! before us. A child that ends with a session may be such a client, and the lock is not held beside it. A child
//! without a session has no place in a queue, and does not count.

use std::sync::Arc;

use crate::ensemble::{Children, Connection, EnsembleError, EnsembleResult};
use crate::queue;

/// Most children that are read. Any further child counts as a stranger.
const MOST_LOOKS: usize = 32;

/// The children of the lock root.
pub(in crate::task) struct Listed {
    /// All of them, and the lock root that they belong to.
    pub(in crate::task) children: Children,
    /// Those of unknown kinds that end with a session, or may.
    pub(in crate::task) strangers: Vec<String>,
    /// Those of unknown kinds that stay.
    pub(in crate::task) bystanders: Vec<String>,
}

/// Lists the children, and reads those that are not contenders.
pub(in crate::task) async fn list<C: Connection>(connection: Arc<C>, root: String) -> EnsembleResult<Listed> {
    let children = connection.children(&root).await?;
    let (mut strangers, mut bystanders) = (Vec::new(), Vec::new());
    for (index, name) in queue::unknown(&children.names).into_iter().enumerate() {
        if index == MOST_LOOKS {
            strangers.push(name);
            break;
        }
        match connection.node(&format!("{root}/{name}")).await {
            Ok(node) if node.is_ephemeral() => strangers.push(name),
            Ok(_) => bystanders.push(name),
            Err(EnsembleError::NoNode) => {}
            Err(EnsembleError::NoAuth) => strangers.push(name),
            Err(error) => return Err(error),
        }
    }
    Ok(Listed {
        children,
        strangers,
        bystanders,
    })
}
