//! One connection: the watch, the reads, and how they are fitted together.
//!
//! Answers and events arrive on different channels, so their order is not that of the server. These rules make up for
//! it: a contender counts only by a read of its own node; an event about a node that is being read makes it read
//! again; and a deletion makes the answer that is under way void.
//!
//! Clients that may create contenders decide how many events there are. The ZooKeeper client keeps them without any bound, so they are
//! taken from it before anything is read, and cost next to nothing: a read waits once ([`Backlog`]), and a lock whose
//! children change too often is given up ([`Churn`]). Changes that are mere renewals are neither read nor counted
//! ([`Renewals`]).

mod reading;

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockkeeper_lock::FencingToken;
use lockkeeper_lock::ensemble::{EnsembleError, is_ephemeral};
use lockkeeper_lock::zookeeper::Onlooker;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use zookeeper_client as zk;

use super::backlog::Backlog;
use super::churn::Churn;
use super::listed_again::ListedAgain;
use super::picture::{Contender, Excess, Picture};
use super::reads::{Answer, Children, GivenUp, Reader};
use super::renewals::Renewals;
use super::under_way::{Fate, UnderWay};
use super::view::Shared;
use crate::lock_key::LockKey;
use crate::zookeeper::children::{CHILDREN_OF_NAMESPACE, LONGEST_NAME, WINDOW, cut};
use crate::zookeeper::nodes::Tree;
use crate::zookeeper::paths::{Layout, Place};

/// Reads under way at once. A server works on the requests of one connection in order; this only
/// keeps it busy, and stays below what a server lets wait in all (`globalOutstandingLimit`, 1000). A contender may
/// grow to 1 MB (`jute.maxbuffer`) between the look at its length and the read: this bounds that, too.
const READS: usize = 64;

/// Lock roots that are listed again at each look: a few a second.
const LISTS: usize = 100;

/// Events that are taken in one after the other, before other tasks get a turn.
const EVENTS: usize = 1024;

/// What events may take in the client's memory while there is always one more of them, in bytes: if they come faster than
/// they are taken, most of it may be waiting. All contenders of a namespace that come, change and go at once have half of it.
const IN_A_ROW: usize = 64 << 20;

/// What an event takes beside its path, in bytes.
const EVENT: usize = 128;

const LOST: &str = "the connection to the server was lost";

pub(super) struct Follow {
    reader: Reader,
    layout: Layout,
    watcher: zk::PersistentWatcher,
    closed: BoxFuture<'static, ()>,
    backlog: Backlog,
    reads: FuturesUnordered<BoxFuture<'static, (Place, Answer)>>,
    under_way: UnderWay,
    /// What is being read for the first time; `None` once it was taken.
    first: Option<First>,
    /// What is known of the lock roots that were given up. The picture says which they are.
    given_up: HashMap<LockKey, GivenUp>,
    look: Interval,
    /// Whose children were listed again last.
    listed_again: ListedAgain,
    churn: Churn,
    renewals: Renewals,
    /// What events have taken since there was none.
    in_a_row: usize,
}

/// Everything that exists, read once. What changes meanwhile is read afterwards: otherwise a client that changes something
/// all the time would keep this from ever being complete.
#[derive(Default)]
struct First {
    picture: Picture,
    backlog: Backlog,
}

impl Follow {
    /// Sets the watch and begins to read.
    pub(super) async fn start(connection: Arc<Onlooker>, tree: &Tree) -> Result<Self, EnsembleError> {
        let (layout, place) = (tree.layout().clone(), tree.place());
        let watcher = connection
            .watch(&layout.path(&place), zk::AddWatchMode::PersistentRecursive)
            .await?;
        let mut look = tokio::time::interval(WINDOW);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut follow = Self {
            closed: Box::pin(connection.closed().map(drop)),
            reader: Reader::new(connection),
            layout,
            watcher,
            backlog: Backlog::default(),
            reads: FuturesUnordered::new(),
            under_way: UnderWay::default(),
            first: Some(First::default()),
            given_up: HashMap::new(),
            look,
            listed_again: ListedAgain::default(),
            churn: Churn::default(),
            renewals: Renewals::new(Instant::now()),
            in_a_row: 0,
        };
        follow.list(place);
        Ok(follow)
    }

    /// The first picture, when everything was read.
    pub(super) fn take_finished(&mut self) -> Option<Picture> {
        let is_read = |first: &mut First| first.backlog.is_empty() && self.reads.is_empty();
        self.first.take_if(is_read).map(|first| first.picture)
    }

    /// Waits for one answer or event, and takes it in. An error is the reason why this connection is
    /// of no more use.
    pub(super) async fn step(&mut self, shared: &Shared) -> Result<(), String> {
        // Events come first: they make many reads unnecessary.
        if !self.hear(shared)? {
            tokio::task::yield_now().await;
        }
        self.start_reads();
        tokio::select! {
            biased;
            () = &mut self.closed => Err(LOST.to_owned()),
            Some((place, answer)) = self.reads.next() => {
                self.take(place, answer, shared)?;
                while let Some(Some((place, answer))) = self.reads.next().now_or_never() {
                    self.take(place, answer, shared)?;
                }
                Ok(())
            }
            event = self.watcher.changed() => self.event(&event, shared),
            _ = self.look.tick() => {
                let mut keys: Vec<_> = self.look_at(shared, |picture| picture.given_up().cloned().collect());
                keys.retain(|key| self.churn.is_calm(key));
                self.churn.begin_anew();
                self.renewals.tidy(Instant::now());
                for key in keys {
                    self.given_up.entry(key.clone()).or_insert(GivenUp { version: None });
                    self.read(Place::Lock(key), shared);
                }
                self.list_again(shared);
                Ok(())
            }
        }
    }

    /// Takes in the events that have arrived, and returns whether there are no more.
    fn hear(&mut self, shared: &Shared) -> Result<bool, String> {
        for _ in 0..EVENTS {
            let Some(event) = self.watcher.changed().now_or_never() else {
                self.in_a_row = 0;
                return Ok(true);
            };
            self.in_a_row += EVENT + event.path.len();
            self.event(&event, shared)?;
        }
        if self.in_a_row > IN_A_ROW {
            return Err("the contenders change faster than the operator takes it in".to_owned());
        }
        Ok(false)
    }

    fn take(&mut self, place: Place, answer: Answer, shared: &Shared) -> Result<(), String> {
        let fate = self.under_way.end(&place);
        if let Answer::Failed(error) = answer {
            return Err(format!("failed to read {}: {error}", self.layout.path(&place)));
        }
        if matches!(fate, Fate::Changed | Fate::Replaced) {
            self.read(place.clone(), shared);
        }
        if matches!(fate, Fate::Counts | Fate::Changed) {
            self.count(place, answer, shared);
        }
        Ok(())
    }

    fn count(&mut self, place: Place, answer: Answer, shared: &Shared) {
        match (place, answer) {
            (Place::Locks, Answer::Children(Children { names, .. })) => {
                for namespace in names {
                    self.list(Place::Namespace(namespace.into()));
                }
            }
            (Place::Namespace(namespace), Answer::Children(Children { names, .. })) => {
                for name in names {
                    self.list(Place::Lock(LockKey::new(Arc::clone(&namespace), name)));
                }
            }
            (Place::Lock(key), Answer::Children(Children { names, long })) => {
                let waiting = self.waiting(&key.namespace);
                let known = self.look_at(shared, |picture| picture.contenders_of(&key.namespace));
                let (names, new) = self.unread_of(&key, names, &long, shared);
                if waiting + known + new > CHILDREN_OF_NAMESPACE {
                    self.give_up(&key, Excess::Namespace, None, shared);
                    return;
                }
                self.given_up.remove(&key);
                self.renewals.listed(&key, Instant::now());
                self.edit(&key, shared, |picture| {
                    picture.set_exists(&key, true) | picture.take_up(&key)
                });
                for name in long {
                    self.put_unread(&key, name, shared);
                }
                for name in names {
                    self.list(Place::Contender(key.clone(), name));
                }
            }
            (Place::Lock(key), Answer::TooMuch(excess, version)) => {
                self.give_up(&key, excess, version, shared);
            }
            (Place::Lock(_), Answer::Unchanged) => {}
            (Place::Contender(key, name), Answer::Node(data, stat)) => {
                let is_ephemeral = is_ephemeral(stat.ephemeral_owner);
                let contender = Contender::read(name, FencingToken(stat.czxid), is_ephemeral, &data);
                let name = Arc::clone(&contender.name);
                let (states_lease, is_held) = (contender.data.lease().is_some(), contender.data.is_held());
                self.edit(&key, shared, |picture| picture.put(&key, contender));
                // It may have been one too many.
                if self.look_at(shared, |picture| picture.is_given_up(&key)) {
                    self.renewals.forget(&key);
                } else {
                    self.renewals
                        .read(&key, &name, states_lease, is_held, Instant::now());
                }
            }
            (Place::Contender(key, name), Answer::Forbidden) => {
                tracing::debug!(lock = %key, contender = name, "No right to read a contender");
                self.put_unread(&key, name, shared);
            }
            (place, Answer::Gone) => self.gone(&place, shared),
            (place, Answer::Forbidden) => {
                tracing::warn!(
                    path = self.layout.path(&place),
                    "No right to list the children of a node"
                );
            }
            (
                _,
                Answer::Children(_)
                | Answer::Node(..)
                | Answer::TooMuch(..)
                | Answer::Unchanged
                | Answer::Failed(_),
            ) => {
                unreachable!("asked for by the kind of place; a failure was returned before")
            }
        }
    }

    /// Keeps nothing of what is below a lock root.
    fn give_up(&mut self, key: &LockKey, excess: Excess, version: Option<i32>, shared: &Shared) {
        if self.given_up.insert(key.clone(), GivenUp { version }).is_none() {
            tracing::warn!(lock = %key, %excess, "A queue is not followed");
        }
        self.renewals.forget(key);
        self.backlog.remove_lock(key);
        if let Some(first) = &mut self.first {
            first.backlog.remove_lock(key);
        }
        self.edit(key, shared, |picture| {
            picture.set_exists(key, true) | picture.give_up(key, excess)
        });
    }

    /// A child of which nothing but its name is known.
    fn put_unread(&mut self, key: &LockKey, name: String, shared: &Shared) {
        let contender = Contender::unread(name);
        self.edit(key, shared, |picture| picture.put(key, contender));
    }

    fn event(&mut self, event: &zk::WatchedEvent, shared: &Shared) -> Result<(), String> {
        if event.event_type == zk::EventType::Session {
            return Err(LOST.to_owned());
        }
        let Some(mut place) = self.layout.place(&event.path) else {
            return Ok(());
        };
        if let Place::Contender(key, name) = &mut place {
            let is_changed = event.event_type == zk::EventType::NodeDataChanged;
            if is_changed && self.renewals.is_one(key, name, Instant::now()) {
                return Ok(());
            }
            if self.is_ignored(key, shared) {
                return Ok(());
            }
            if name.len() > LONGEST_NAME {
                *name = cut(name);
                if event.event_type != zk::EventType::NodeDeleted {
                    let (key, name) = (key.clone(), name.clone());
                    self.put_unread(&key, name, shared);
                    return Ok(());
                }
            }
        }
        match event.event_type {
            zk::EventType::NodeDeleted => {
                self.under_way.make_void(&place);
                self.backlog.remove(&place);
                if let Some(first) = &mut self.first {
                    first.backlog.remove(&place);
                }
                self.gone(&place, shared);
            }
            // A lock root that was made while this connection lasts: its children are events too.
            zk::EventType::NodeCreated | zk::EventType::NodeDataChanged => match &place {
                Place::Locks | Place::Namespace(_) => {}
                Place::Lock(key) => self.edit(key, shared, |picture| picture.set_exists(key, true)),
                Place::Contender(..) => self.read(place, shared),
            },
            _ => {}
        }
        Ok(())
    }

    /// Whether a change below this lock root is of no interest, since it was given up, or is now.
    fn is_ignored(&mut self, key: &LockKey, shared: &Shared) -> bool {
        let is_given_up = |follow: &Self| follow.look_at(shared, |picture| picture.is_given_up(key));
        if is_given_up(self) {
            self.churn.note_ignored(key);
            // A list under way may be older than the change: the node is listed again at the next look.
            if self.under_way.make_void(&Place::Lock(key.clone())) {
                self.given_up.remove(key);
            }
            return true;
        }
        if let Some(worst) = self.churn.note(key) {
            self.give_up(&worst, Excess::Changes, None, shared);
        }
        is_given_up(self)
    }

    fn gone(&mut self, place: &Place, shared: &Shared) {
        match place {
            Place::Locks | Place::Namespace(_) => {}
            Place::Lock(key) => {
                self.given_up.remove(key);
                self.renewals.forget(key);
                self.edit(key, shared, |picture| picture.set_exists(key, false));
            }
            Place::Contender(key, name) => {
                self.renewals.left(key, name, Instant::now());
                self.edit(key, shared, |picture| picture.remove(key, name));
            }
        }
    }

    fn edit(&mut self, key: &LockKey, shared: &Shared, edit: impl FnOnce(&mut Picture) -> bool) {
        match &mut self.first {
            Some(first) => {
                edit(&mut first.picture);
            }
            None => shared.edit(key, edit),
        }
    }

    fn look_at<T>(&self, shared: &Shared, look: impl FnOnce(&Picture) -> T) -> T {
        match &self.first {
            Some(first) => look(&first.picture),
            None => look(&shared.read()),
        }
    }
}
