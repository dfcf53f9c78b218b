//! One lock: its holders and its queue, as the ensemble shows them.

use std::collections::HashMap;
use std::num::NonZeroU32;

use futures_util::{StreamExt, stream};
use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::{
    Agreement, ContenderData, FencingToken, LONGEST_CONTENDER_DATA, Mode, arrange, is_contender,
};
use serde::Serialize;

use super::ensemble::{Ensemble, Node, failure};
use super::entry::Entry;

/// Longest data of a lock root that are read, in bytes: ours have about forty.
const LONGEST_AGREEMENT: usize = 1024;

/// Most contenders of a lock that are read: the others are counted. A Deployment has hundreds of pods at most.
const MOST_READ: usize = 1_000;

/// Most holders that are read for a list of locks.
const MOST_LISTED: usize = 16;

/// Questions under way at once.
const AT_ONCE: usize = 32;

/// How much of a lock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The holders.
    Holders,
    /// And those that wait.
    All,
}

/// A lock, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    /// The path of its node, below the chroot.
    pub(super) lock: String,
    /// `exclusive` or `readWrite`; none if its contenders have made no agreement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_holders: Option<u32>,
    /// The contenders that need not wait for another one.
    pub(super) holders: Vec<Entry>,
    /// How many wait for them.
    pub(super) waiting: usize,
    /// Those that wait, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<Vec<Entry>>,
    /// Children of another kind that end with a session, or may: keepers hold no lock beside them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) strangers: Vec<String>,
}

impl Queue {
    /// Whether contenders use this node, or have used it.
    pub(super) fn is_lock(&self) -> bool {
        self.kind.is_some() || !self.holders.is_empty()
    }

    /// A lock whose node is missing.
    pub(super) fn gone(lock: &str) -> Self {
        Self {
            lock: lock.to_owned(),
            kind: None,
            max_holders: None,
            holders: Vec::new(),
            waiting: 0,
            queue: Some(Vec::new()),
            strangers: Vec::new(),
        }
    }

    /// The same without the times of the renewals.
    pub(super) fn without_renewals(&self) -> Self {
        let mut queue = self.clone();
        for one in queue.holders.iter_mut().chain(queue.queue.iter_mut().flatten()) {
            one.renewed = None;
        }
        queue
    }
}

/// Reads a lock; `None` if its node is missing.
///
/// # Errors
/// When the ensemble cannot be asked.
pub(super) async fn read(ensemble: &Ensemble, lock: &str, depth: Depth) -> Result<Option<Queue>, Failure> {
    let read = read_queue(ensemble, lock, depth).await;
    read.map_err(|error| failure(&error, &format!("cannot read {lock}")))
}

async fn read_queue(ensemble: &Ensemble, lock: &str, depth: Depth) -> Result<Option<Queue>, EnsembleError> {
    let root = match ensemble.node(lock, LONGEST_AGREEMENT).await {
        Ok(None) => return Ok(None),
        Ok(Some(root)) => Agreement::parse(&root.data).ok().flatten(),
        Err(error) => return Err(error),
    };
    let children = ensemble.children(lock).await?;
    let (contenders, others): (Vec<_>, Vec<_>) = children.into_iter().partition(|name| is_contender(name));
    let mode = mode(root);
    let unread = contenders
        .iter()
        .map(|name| (name.clone(), FencingToken(0), ContenderData::default()));
    let in_order = arrange(unread, mode);
    let first = match depth {
        Depth::Holders => in_order
            .iter()
            .take_while(|one| one.is_holder)
            .count()
            .min(MOST_LISTED),
        Depth::All => in_order.len().min(MOST_READ),
    };
    let mut nodes: HashMap<String, Option<Node>> = stream::iter(&in_order[..first])
        .map(async |one| {
            let node = ensemble
                .node(&format!("{lock}/{}", one.name), LONGEST_CONTENDER_DATA)
                .await?;
            Ok((one.name.clone(), node))
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<_, EnsembleError>>()?;
    let (mut holders, mut queue) = (Vec::new(), Vec::new());
    for mut one in in_order {
        let place = if one.is_holder { &mut holders } else { &mut queue };
        match nodes.remove(&one.name) {
            None => place.push(Entry::of(one, None)),
            Some(Some(node)) => {
                one.token = FencingToken(node.stat.as_ref().map_or(0, |stat| stat.czxid));
                one.data = ContenderData::parse(&node.data);
                place.push(Entry::of(one, Some(&node)));
            }
            // It has left since.
            Some(None) => {}
        }
    }
    Ok(Some(Queue {
        lock: lock.to_owned(),
        kind: root.map(|agreement| match agreement {
            Agreement::Exclusive(_) => "exclusive",
            Agreement::ReadWrite => "readWrite",
        }),
        max_holders: root.and_then(|agreement| match agreement {
            Agreement::Exclusive(holders) => Some(holders.get()),
            Agreement::ReadWrite => None,
        }),
        holders,
        waiting: queue.len(),
        queue: (depth == Depth::All).then_some(queue),
        strangers: strangers(ensemble, lock, others).await?,
    }))
}

/// By what its contenders have agreed on. Where there is no agreement, names of readers show a read/write lock.
fn mode(agreement: Option<Agreement>) -> Mode {
    match agreement {
        Some(Agreement::Exclusive(NonZeroU32::MIN)) => Mode::Exclusive,
        Some(Agreement::Exclusive(holders)) => Mode::Semaphore(holders),
        Some(Agreement::ReadWrite) | None => Mode::Write,
    }
}

/// Those of some children that end with a session, or may: we cannot read them.
async fn strangers(
    ensemble: &Ensemble,
    lock: &str,
    children: Vec<String>,
) -> Result<Vec<String>, EnsembleError> {
    let mut strangers = Vec::new();
    for name in children.into_iter().take(MOST_READ) {
        match ensemble.node(&format!("{lock}/{name}"), 0).await {
            Ok(Some(node)) if node.stat.is_none_or(|stat| stat.ephemeral_owner != 0) => strangers.push(name),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    strangers.sort();
    Ok(strangers)
}
