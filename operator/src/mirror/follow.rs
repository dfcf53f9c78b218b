//! One connection: the watch, the reads, and how they are fitted together.
//!
//! Answers and events come to us by different ways, so their order is not that of the server. What
//! makes up for it: a contender counts only by a read of its own node; an event about a node that is
//! being read makes it read again; and a deletion makes the answer that is under way void.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockkeeper_lock::FencingToken;
use lockkeeper_lock::zookeeper::Onlooker;
use zookeeper_client as zk;

use super::Shared;
use crate::layout::{Layout, LockKey, Place};
use crate::picture::{Contender, Picture};
use crate::tree::Tree;

/// Reads under way at once. A server works on the requests of one connection in order; this only
/// keeps it busy, and stays below what a server lets wait in all (`globalOutstandingLimit`, 1000).
const READS: usize = 256;

/// A connection that is being followed.
pub(super) struct Follow {
    connection: Arc<Onlooker>,
    layout: Layout,
    watcher: zk::PersistentWatcher,
    closed: BoxFuture<'static, ()>,
    backlog: VecDeque<Place>,
    reads: FuturesUnordered<BoxFuture<'static, (Place, Answer)>>,
    under_way: HashMap<Place, Fate>,
    /// What is being read for the first time; `None` once it was taken.
    first: Option<Picture>,
}

/// What is to become of an answer that is under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Counts,
    /// The node was changed since: read it again.
    Repeated,
    /// The node was deleted since.
    Void,
}

enum Answer {
    Children(Vec<String>),
    Node(Vec<u8>, i64),
    Gone,
    Forbidden,
    Failed(zk::Error),
}

impl Follow {
    /// Sets the watch and begins to read.
    pub(super) async fn start(connection: Arc<Onlooker>, tree: &Tree) -> Result<Self, zk::Error> {
        let (layout, place) = (tree.layout().clone(), tree.place());
        let watcher = connection
            .watch(&layout.path(&place), zk::AddWatchMode::PersistentRecursive)
            .await?;
        let mut follow = Self {
            closed: Box::pin(connection.closed().map(drop)),
            connection,
            layout,
            watcher,
            backlog: VecDeque::new(),
            reads: FuturesUnordered::new(),
            under_way: HashMap::new(),
            first: Some(Picture::default()),
        };
        follow.read(place);
        Ok(follow)
    }

    /// The first picture, when everything was read.
    pub(super) fn take_finished(&mut self) -> Option<Picture> {
        if self.backlog.is_empty() && self.reads.is_empty() {
            self.first.take()
        } else {
            None
        }
    }

    /// Waits for one answer or event, and takes it in. An error is the reason why this connection is
    /// of no more use.
    pub(super) async fn step(&mut self, shared: &Shared) -> Result<(), String> {
        tokio::select! {
            biased;
            () = &mut self.closed => Err("the connection to the server was lost".to_owned()),
            Some((place, answer)) = self.reads.next() => self.take(place, answer, shared),
            event = self.watcher.changed() => {
                self.event(&event, shared);
                Ok(())
            }
        }
    }

    fn take(&mut self, place: Place, answer: Answer, shared: &Shared) -> Result<(), String> {
        let fate = self.under_way.remove(&place).unwrap_or(Fate::Void);
        if let Answer::Failed(error) = answer {
            return Err(format!("failed to read {}: {error}", self.layout.path(&place)));
        }
        match fate {
            Fate::Counts => self.count(place, answer, shared),
            Fate::Repeated => self.read(place),
            Fate::Void => {}
        }
        self.start_reads();
        Ok(())
    }

    fn count(&mut self, place: Place, answer: Answer, shared: &Shared) {
        match (place, answer) {
            (Place::Locks, Answer::Children(namespaces)) => {
                for namespace in namespaces {
                    self.read(Place::Namespace(namespace.into()));
                }
            }
            (Place::Namespace(namespace), Answer::Children(locks)) => {
                for name in locks {
                    self.read(Place::Lock(LockKey::new(Arc::clone(&namespace), name)));
                }
            }
            (Place::Lock(key), Answer::Children(contenders)) => {
                self.edit(&key, shared, |picture| picture.set_exists(&key, true));
                for name in contenders {
                    self.read(Place::Contender(key.clone(), name));
                }
            }
            (Place::Contender(key, name), Answer::Node(data, czxid)) => {
                let contender = Contender::read(name, FencingToken(czxid), &data);
                self.edit(&key, shared, |picture| picture.put(&key, contender));
            }
            (Place::Contender(key, name), Answer::Forbidden) => {
                tracing::warn!(lock = %key, contender = name, "No right to read a contender");
                let contender = Contender::read(name, FencingToken(0), &[]);
                self.edit(&key, shared, |picture| picture.put(&key, contender));
            }
            (place, Answer::Gone) => self.gone(&place, shared),
            (place, Answer::Forbidden) => {
                tracing::warn!(
                    path = self.layout.path(&place),
                    "No right to list the children of a node"
                );
            }
            (_, Answer::Children(_) | Answer::Node(..) | Answer::Failed(_)) => {
                unreachable!("asked for by the kind of place; a failure was returned before")
            }
        }
    }

    fn event(&mut self, event: &zk::WatchedEvent, shared: &Shared) {
        let Some(place) = self.layout.place(&event.path) else {
            return;
        };
        match event.event_type {
            zk::EventType::NodeDeleted => {
                if let Some(fate) = self.under_way.get_mut(&place) {
                    *fate = Fate::Void;
                }
                self.gone(&place, shared);
            }
            // A lock root that was made while this connection lasts: its children are events too.
            zk::EventType::NodeCreated | zk::EventType::NodeDataChanged => match &place {
                Place::Locks | Place::Namespace(_) => {}
                Place::Lock(key) => self.edit(key, shared, |picture| picture.set_exists(key, true)),
                Place::Contender(..) => self.read(place),
            },
            _ => {}
        }
    }

    fn gone(&mut self, place: &Place, shared: &Shared) {
        match place {
            Place::Locks | Place::Namespace(_) => {}
            Place::Lock(key) => self.edit(key, shared, |picture| picture.set_exists(key, false)),
            Place::Contender(key, name) => self.edit(key, shared, |picture| picture.remove(key, name)),
        }
    }

    fn edit(&mut self, key: &LockKey, shared: &Shared, edit: impl FnOnce(&mut Picture) -> bool) {
        match &mut self.first {
            Some(picture) => {
                edit(picture);
            }
            None => shared.edit(key, edit),
        }
    }

    fn read(&mut self, place: Place) {
        if let Some(fate) = self.under_way.get_mut(&place) {
            *fate = Fate::Repeated;
            return;
        }
        self.backlog.push_back(place);
        self.start_reads();
    }

    fn start_reads(&mut self) {
        while self.reads.len() < READS
            && let Some(place) = self.backlog.pop_front()
        {
            if self.under_way.insert(place.clone(), Fate::Counts).is_some() {
                // Asked for twice while it waited, and begun in between.
                self.under_way.insert(place, Fate::Repeated);
                continue;
            }
            let connection = Arc::clone(&self.connection);
            let path = self.layout.path(&place);
            self.reads.push(Box::pin(async move {
                let answer = match &place {
                    Place::Contender(..) => connection
                        .get_data(&path)
                        .await
                        .map(|(data, stat)| Answer::Node(data, stat.czxid)),
                    _ => connection.list_children(&path).await.map(Answer::Children),
                };
                let answer = answer.unwrap_or_else(|error| match error {
                    zk::Error::NoNode => Answer::Gone,
                    zk::Error::NoAuth => Answer::Forbidden,
                    error => Answer::Failed(error),
                });
                (place, answer)
            }));
        }
    }
}
