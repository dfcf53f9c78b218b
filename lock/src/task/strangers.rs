//! Children of the lock root that are no contenders of a known kind.
//!
//! A client that nobody here knows may stand in the queue by rules of its own: whether it comes before us
//! cannot be told from its name. What ends with a session is such a client, or may be; the lock is not held
//! beside it. What stays without a session is nobody's place in a queue, and is not counted.

use std::sync::Arc;

use super::{Place, Task};
use crate::clock::Clock;
use crate::ensemble::{Children, Connection, Ensemble, EnsembleError, EnsembleResult};
use crate::error::LockError;
use crate::queue;

/// Most children that are looked at, each with a read. What is beyond counts as a stranger.
const MOST_LOOKS: usize = 32;

/// The children of the lock root.
pub(super) struct Listed {
    /// All of them, and whose they are.
    pub children: Children,
    /// Those of no known kind that end with a session, or may.
    pub strangers: Vec<String>,
    /// Those of no known kind that stay.
    pub bystanders: Vec<String>,
}

/// Lists the children, and looks at those that are no contenders.
pub(super) async fn list<C: Connection>(connection: Arc<C>, root: String) -> EnsembleResult<Listed> {
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

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Says whom the lock is not held beside, and names once what is not counted.
    pub(super) fn tell_strangers(&mut self, bystanders: Vec<String>) {
        let Place::In(entry) = &self.place else { return };
        let strangers = entry.ahead.iter().flat_map(queue::Ahead::strangers);
        let refusal = strangers.map(|name| LockError::Stranger {
            path: format!("{}/{name}", self.options.root),
        });
        let refusal = refusal.take(1).next();
        if self.refusal != refusal {
            if let Some(refusal) = &refusal {
                tracing::warn!(lock.path = self.options.root, "{refusal}; waiting for that");
            }
            self.refusal = refusal;
        }
        if self.bystanders != bystanders {
            if !bystanders.is_empty() {
                tracing::warn!(
                    lock.path = self.options.root,
                    children = ?bystanders,
                    "Children of the lock root that are no contenders; not counted"
                );
            }
            self.bystanders = bystanders;
        }
    }
}
