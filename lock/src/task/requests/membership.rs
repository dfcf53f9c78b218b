//! Checks that the ensemble is the one that the lock is in ([`crate::LockOptions::ensemble`]).
//!
//! Names and addresses of servers may one day lead to another ensemble, which does not have the queue. So the task
//! reads the ID before it creates a contender, over the same connection. If the ID is wrong, it closes the connection;
//! the next one looks the names up again.

use uuid::Uuid;

use super::bar::{Bar, provided};
use crate::ensemble::{Connection, EnsembleResult, NodeEvent};
use crate::error::LockError;
use crate::options::EnsembleId;

/// The bar for an ensemble that is another one, or that has no ID.
pub(in crate::task) async fn verify<C: Connection>(
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
