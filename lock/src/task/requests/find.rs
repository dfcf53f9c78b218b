//! Finds a contender whose creation was not answered.

use std::sync::Arc;

use crate::agreement::Agreement;
use crate::ensemble::{Connection, Created, EnsembleError, EnsembleResult, Incarnation, Op};
use crate::queue::Mode;
use crate::record::ContenderData;

/// A contender that was found, and the lock root whose agreement admits it.
pub(in crate::task) struct Found {
    pub(in crate::task) created: Created,
    pub(in crate::task) agreed: Option<Incarnation>,
    pub(in crate::task) data: ContenderData,
}

/// Finds a contender whose creation was not answered. The quorum write before the listing goes the
/// same way as the creation, behind it: so the fate of the creation is decided when the write is answered.
pub(in crate::task) async fn find<C: Connection>(
    connection: Arc<C>,
    root: String,
    prefix: String,
    mode: Mode,
) -> EnsembleResult<Option<Found>> {
    match connection.multi(vec![Op::Check { path: root.clone() }]).await {
        Ok(()) => {}
        Err(failed) if failed.error == EnsembleError::NoNode => return Ok(None),
        Err(failed) => return Err(failed.error),
    }
    let children = connection.children(&root).await?.names;
    let Some(path) = children
        .iter()
        .map(|name| format!("{root}/{name}"))
        .find(|path| path.starts_with(&prefix))
    else {
        return Ok(None);
    };
    let (created, data) = match connection.node(&path).await {
        Ok(node) => {
            let created = Created {
                path,
                czxid: node.czxid,
                owner: node.owner,
            };
            (created, ContenderData::parse(&node.data))
        }
        Err(EnsembleError::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    };
    // While the contender exists, the lock root is the one under which it was created.
    let agreed = match connection.node(&root).await {
        Ok(node) => {
            let agreement = Agreement::parse(&node.data).ok().flatten();
            let admits = agreement.is_some_and(|agreement| agreement.admits(mode).is_ok());
            admits.then(|| node.incarnation())
        }
        Err(EnsembleError::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Found {
        created,
        agreed,
        data,
    }))
}
