//! Conditions that keep a contender out of the queue until something changes.

use futures_util::future::BoxFuture;

use crate::ensemble::{Connection, EnsembleError, EnsembleResult, Node, NodeEvent};
use crate::error::LockError;

/// A condition that keeps us out of the queue.
pub(in crate::task) struct Bar {
    pub(in crate::task) refusal: LockError,
    /// Completes when a missing node appears, or the data of an existing node change; `None` if there is no event for
    /// it.
    pub(in crate::task) changed: Option<BoxFuture<'static, NodeEvent>>,
    /// What to do after a pause: look again, or look again over another connection.
    pub(in crate::task) then: NodeEvent,
}

impl Bar {
    /// A bar whose end causes no event.
    pub(in crate::task) fn new(refusal: LockError) -> Self {
        Self {
            refusal,
            changed: None,
            then: NodeEvent::Changed,
        }
    }

    /// A node is missing (`NoNode`), or gives us no right (`NoAuth`).
    pub(in crate::task) fn not_provided(path: &str, error: EnsembleError) -> Self {
        Self::new(LockError::NotProvided {
            path: path.to_owned(),
            error,
        })
    }
}

/// A node, if it exists and we may read it.
pub(in crate::task) async fn provided<C: Connection>(
    connection: &C,
    path: &str,
) -> EnsembleResult<Result<Node, Bar>> {
    let (error, made) = match connection.watch_creation(path).await {
        Ok(Some(made)) => (EnsembleError::NoNode, Some(made)),
        Ok(None) => match connection.node(path).await {
            Ok(node) => return Ok(Ok(node)),
            Err(error) => (error, None),
        },
        Err(error) => (error, None),
    };
    match error {
        EnsembleError::NoNode | EnsembleError::NoAuth => Ok(Err(Bar {
            changed: made,
            ..Bar::not_provided(path, error)
        })),
        error => Err(error),
    }
}
