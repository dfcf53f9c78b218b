//! The contenders in a queue.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ensemble::{Connection, EnsembleError, EnsembleResult};
use crate::queue::{Mode, sorted};
use crate::record::ContenderData;
use crate::token::FencingToken;

/// A contender as seen from outside. It may be out of date: do not act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Name below the lock root.
    pub name: String,
    /// The token under which it holds the lock, or will.
    pub token: FencingToken,
    /// Whether it need not wait for a contender before it.
    pub is_holder: bool,
    /// What the contender states about itself. Shared, since other clients decide how long it is.
    pub data: Arc<ContenderData>,
}

/// The queue of a lock, in order, from the nodes below its root: names, tokens and data. `mode` is that of the lock. In
/// a read/write lock the name of a contender shows whether it reads or writes.
pub fn arrange(
    nodes: impl IntoIterator<Item = (String, FencingToken, Arc<ContenderData>)>,
    mode: Mode,
) -> Vec<Participant> {
    let mut nodes: HashMap<_, _> = nodes
        .into_iter()
        .map(|(name, token, data)| (name, (token, data)))
        .collect();
    let names: Vec<_> = nodes.keys().cloned().collect();
    let mut is_writer_before = false;
    sorted(&names)
        .into_iter()
        .enumerate()
        .filter_map(|(index, contender)| {
            let (token, data) = nodes.remove(&contender.name)?;
            let is_holder = match mode {
                Mode::Semaphore(limit) => index < limit.get() as usize,
                Mode::Read | Mode::Write if contender.is_reader => !is_writer_before,
                Mode::Exclusive | Mode::Read | Mode::Write => index == 0,
            };
            is_writer_before |= !contender.is_reader;
            Some(Participant {
                name: contender.name,
                token,
                is_holder,
                data,
            })
        })
        .collect()
}

/// Lists the contenders below `root` in order.
pub(crate) async fn list<C: Connection>(
    connection: Arc<C>,
    root: String,
    mode: Mode,
) -> EnsembleResult<Vec<Participant>> {
    let children = match connection.children(&root).await {
        Ok(children) => children.names,
        Err(EnsembleError::NoNode) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut nodes = Vec::new();
    for contender in sorted(&children) {
        match connection.node(&format!("{root}/{}", contender.name)).await {
            Ok(node) => {
                let data = ContenderData::parse(&node.data);
                nodes.push((contender.name, node.czxid, Arc::new(data)));
            }
            Err(EnsembleError::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(arrange(nodes, mode))
}
