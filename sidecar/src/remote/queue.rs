//! One lock: its holders and its queue, as the ensemble shows them.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::ensemble::{EnsembleError, is_ephemeral};
use lockkeeper_lock::{
    Agreement, ContenderData, FencingToken, LONGEST_CONTENDER_DATA, Mode, Participant, arrange, is_contender,
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

/// Most contenders that are read for a page of locks.
const MOST_ON_PAGE: usize = 64;

/// Children of other kinds that keepers look at (docs/architecture.md, "Others in the queue").
const MOST_LOOKS: usize = 32;

/// Questions under way at once.
const AT_ONCE: usize = 32;

/// How much of a lock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Holders,
    /// And the first of those that wait; of the others only that they are there.
    First,
    /// And those that wait.
    All,
}

/// A lock, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    /// The path of its node, below the chroot.
    pub(super) lock: String,
    /// Its node was deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) missing: bool,
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

    /// All contenders that are known: the holders, and those that wait.
    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.holders.iter().chain(self.queue.iter().flatten())
    }

    /// A lock whose node is missing.
    pub(super) fn gone(lock: &str) -> Self {
        Self {
            lock: lock.to_owned(),
            missing: true,
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
    let Some(children) = ensemble.children(lock).await? else {
        return Ok(None);
    };
    let (mut contenders, others): (Vec<_>, Vec<_>) =
        children.into_iter().partition(|name| is_contender(name));
    let mode = mode(root);
    let first = in_order(&contenders, &HashMap::new(), mode).into_iter();
    let first: Vec<_> = match depth {
        Depth::Holders => first.take_while(|one| one.is_holder).take(MOST_LISTED).collect(),
        Depth::First => first.take(MOST_ON_PAGE).collect(),
        Depth::All => first.take(MOST_READ).collect(),
    };
    let nodes: HashMap<String, Option<Node>> = stream::iter(first)
        .map(async |one| {
            let path = format!("{lock}/{}", one.name);
            let node = ensemble.node(&path, LONGEST_CONTENDER_DATA).await?;
            Ok((one.name, node))
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<_, EnsembleError>>()?;
    // Those that have left since make room for others.
    contenders.retain(|name| !matches!(nodes.get(name), Some(None)));
    let (mut holders, mut queue) = (Vec::new(), Vec::new());
    for one in in_order(&contenders, &nodes, mode) {
        let place = if one.is_holder { &mut holders } else { &mut queue };
        let node = nodes.get(&one.name).and_then(Option::as_ref);
        place.push(Entry::of(one, node));
    }
    Ok(Some(Queue {
        lock: lock.to_owned(),
        missing: false,
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
        queue: (depth != Depth::Holders).then_some(queue),
        strangers: match depth {
            Depth::Holders => Vec::new(),
            Depth::First | Depth::All => strangers(ensemble, lock, others).await?,
        },
    }))
}

/// The contenders in the order of the queue, with what was read of their nodes.
fn in_order(contenders: &[String], nodes: &HashMap<String, Option<Node>>, mode: Mode) -> Vec<Participant> {
    let read = contenders.iter().map(|name| {
        let node = nodes.get(name).and_then(Option::as_ref);
        let stat = node.and_then(|node| node.stat.as_ref());
        let token = FencingToken(stat.map_or(0, |stat| stat.czxid));
        let data = node.map_or_else(ContenderData::default, |node| ContenderData::parse(&node.data));
        (name.clone(), token, Arc::new(data))
    });
    arrange(read, mode)
}

/// By what its contenders have agreed on. Where there is no agreement, names of readers show a read/write lock.
fn mode(agreement: Option<Agreement>) -> Mode {
    match agreement {
        Some(Agreement::Exclusive(NonZeroU32::MIN)) => Mode::Exclusive,
        Some(Agreement::Exclusive(holders)) => Mode::Semaphore(holders),
        Some(Agreement::ReadWrite) | None => Mode::Write,
    }
}

/// Those of some children for which keepers wait: they end with a session, or may, since we cannot read them. Keepers look
/// at 32 of them, and take one more for such a one.
async fn strangers(
    ensemble: &Ensemble,
    lock: &str,
    children: Vec<String>,
) -> Result<Vec<String>, EnsembleError> {
    let mut strangers = Vec::new();
    for (index, name) in children.into_iter().enumerate() {
        if index == MOST_LOOKS {
            strangers.push(name);
            break;
        }
        let node = ensemble.node(&format!("{lock}/{name}"), 0).await?;
        if node.is_some_and(|node| node.stat.is_none_or(|stat| is_ephemeral(stat.ephemeral_owner))) {
            strangers.push(name);
        }
    }
    strangers.sort();
    Ok(strangers)
}
