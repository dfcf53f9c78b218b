//! Enters a queue whose nodes another client creates ([`crate::LockOptions::provisioned`]).
//!
//! A watch reports when a missing node appears. There is no watch for a right, so the task asks again, at growing
//! intervals. Servers since 3.8.4 and 3.9.2 (CVE-2024-23944) announce a new node only to clients that may read it: if
//! the rights come later than the node, the watch ends without an event. So besides every watch the task also asks at
//! those intervals. It reads the agreement about the lock, and never writes it.

use std::sync::Arc;

use futures_util::FutureExt;

use super::agreement::{Entered, NotEntered, Wanted};
use super::bar::{Bar, provided};
use crate::agreement::{Agreement, Objection};
use crate::ensemble::{Connection, EnsembleError, EnsembleResult, Incarnation};
use crate::error::LockError;
use crate::queue::Mode;

/// The objection to a contender of this mode, from the lock root's data.
fn objection(data: &[u8], mode: Mode) -> Option<Objection> {
    match Agreement::parse(data) {
        Ok(Some(agreement)) => agreement.admits(mode).err(),
        Ok(None) => Some(Objection::Missing),
        Err(objection) => Some(objection),
    }
}

/// The lock root, if both nodes exist and the agreement admits us.
async fn look<C: Connection>(
    connection: &C,
    root: &str,
    control: &str,
    mode: Mode,
) -> EnsembleResult<Result<Incarnation, Bar>> {
    let node = match provided(connection, root).await? {
        Ok(node) => node,
        Err(bar) => return Ok(Err(bar)),
    };
    if let Err(bar) = provided(connection, control).await? {
        return Ok(Err(bar));
    }
    if objection(&node.data, mode).is_none() {
        return Ok(Ok(node.incarnation()));
    }
    // Read once more, with a watch: the agreement may have changed since.
    let (node, changed) = match connection.watch_node(root).await {
        Ok((node, changed)) => (node, changed.boxed()),
        Err(error @ (EnsembleError::NoNode | EnsembleError::NoAuth)) => {
            return Ok(Err(Bar::not_provided(root, error)));
        }
        Err(error) => return Err(error),
    };
    Ok(match objection(&node.data, mode) {
        None => Ok(node.incarnation()),
        Some(objection) => Err(Bar {
            changed: Some(changed),
            ..Bar::new(LockError::NotAgreed {
                path: root.to_owned(),
                objection,
            })
        }),
    })
}

/// Creates the contender if both nodes exist, we have the rights, and the agreement admits us.
pub(in crate::task) async fn enter<C: Connection>(
    connection: Arc<C>,
    wanted: Wanted,
    control: String,
) -> Result<Entered, NotEntered> {
    let looked = look(&*connection, &wanted.root, &control, wanted.mode).await?;
    let agreed = looked.map_err(NotEntered::Barred)?;
    match connection
        .create_contender(&wanted.prefix, wanted.data, agreed.version)
        .await
    {
        Ok(created) => Ok(Entered { created, agreed }),
        Err(error @ (EnsembleError::NoNode | EnsembleError::NoAuth | EnsembleError::BadVersion)) => {
            Err(NotEntered::Barred(Bar::not_provided(&wanted.root, error)))
        }
        Err(error) => Err(error.into()),
    }
}
