//! Whether the ensemble that answers is the one that the lock is in ([`crate::LockOptions::ensemble`]).
//!
//! Names and addresses of servers lead elsewhere one day, to an ensemble that knows nothing of the queue.
//! So the ID is read before a contender is created, over the same connection. A wrong one is left: the next
//! connection looks the names up again.

use uuid::Uuid;

use super::provision::{Bar, provided};
use crate::ensemble::{Connection, EnsembleResult, NodeEvent};
use crate::error::LockError;
use crate::options::EnsembleId;

/// What keeps us out of the queue of an ensemble that is another one, or that does not say which it is.
pub(super) async fn verify<C: Connection>(
    connection: &C,
    expected: &EnsembleId,
) -> EnsembleResult<Option<Bar>> {
    let path = &expected.node;
    let elsewhere = |bar: Bar| Bar {
        then: NodeEvent::Disconnected,
        ..bar
    };
    let found = match provided(connection, path).await? {
        Ok(node) => read(&node.data),
        Err(bar) => return Ok(Some(elsewhere(bar))),
    };
    if found == Some(expected.id) {
        return Ok(None);
    }
    let refusal = LockError::OtherEnsemble {
        path: path.clone(),
        expected: expected.id,
        found,
    };
    Ok(Some(elsewhere(Bar::new(refusal))))
}

/// The ID in a node's data: its text, and nothing else.
pub fn read(data: &[u8]) -> Option<Uuid> {
    Uuid::try_parse_ascii(data.trim_ascii()).ok()
}
