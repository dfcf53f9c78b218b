//! Who is in the queue.

use std::sync::Arc;

use crate::ensemble::{Connection, EnsembleError, EnsembleResult};
use crate::queue::{Ahead, Mode, sorted};
use crate::record::ContenderData;
use crate::token::FencingToken;

/// A contender as an onlooker sees it: possibly late, so nothing to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Name below the lock root.
    pub name: String,
    /// Its token.
    pub token: FencingToken,
    /// Whether nobody is before it who would have to go first.
    pub is_holder: bool,
    /// What it says of itself.
    pub data: ContenderData,
}

/// Lists the contenders below `root` in order.
pub(crate) async fn list<C: Connection>(
    connection: Arc<C>,
    root: String,
    mode: Mode,
) -> EnsembleResult<Vec<Participant>> {
    let children = match connection.children(&root).await {
        Ok(children) => children,
        Err(EnsembleError::NoNode) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut list = Vec::new();
    for contender in sorted(&children) {
        let node = match connection.node(&format!("{root}/{}", contender.name)).await {
            Ok(node) => node,
            Err(EnsembleError::NoNode) => continue,
            Err(error) => return Err(error),
        };
        let mode = match mode {
            Mode::Read | Mode::Write if contender.is_reader => Mode::Read,
            Mode::Read | Mode::Write => Mode::Write,
            mode => mode,
        };
        let ahead = Ahead::from_children(&children, &contender.name, mode);
        list.push(Participant {
            is_holder: ahead.is_some_and(|ahead| ahead.place().position == 0),
            name: contender.name,
            token: node.czxid,
            data: ContenderData::parse(&node.data),
        });
    }
    Ok(list)
}
