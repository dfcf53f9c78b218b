//! What the operator knows of the queues: plain data, no I/O.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use lockkeeper_lock::{ContenderData, FencingToken, Mode, Participant, TookOver, arrange, is_contender};

use crate::lock_key::LockKey;
use crate::zookeeper::children::{CHANGES_OF_NAMESPACE, CHILDREN, CHILDREN_OF_NAMESPACE, WINDOW};

/// A child of a lock root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Name below the lock root.
    pub name: Arc<str>,
    /// Its fencing token; 0 where the operator may not read the node.
    pub token: FencingToken,
    /// What the operator uses of what it says.
    pub data: Arc<ContenderData>,
    /// Whether it ends with a session, or may, for all that the operator can read.
    pub(crate) is_ephemeral: bool,
    /// Its data if they are not a document of ours: Curator writes an IP address.
    pub foreign: Option<String>,
}

/// Longest foreign word that is kept, in bytes: enough for an address.
const LONGEST_WORD: usize = 64;

/// One lock as it stands in ZooKeeper. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Whether the lock root is there.
    pub exists: bool,
    contenders: Arc<HashMap<Arc<str>, Arc<Contender>>>,
    excess: Option<Excess>,
}

/// Why a queue is not followed: there is more below the lock root than the operator takes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Excess {
    /// It has so many children or more.
    Children(usize),
    /// Its children and those of the other lock roots of the namespace are too many.
    Namespace,
    /// The names of its children are too long together.
    Names,
    /// They come, change or go too often.
    Changes,
    /// They could not be listed, and why.
    Unlisted(String),
}

/// What was read of all locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    queues: HashMap<LockKey, Queue>,
    /// Contenders of each namespace that has some.
    sizes: HashMap<Arc<str>, usize>,
}

// === impl Contender ===

impl Contender {
    /// A child of which nothing but its name is known.
    pub(crate) fn unread(name: impl Into<Arc<str>>) -> Self {
        Self::read(name, FencingToken(0), true, &[])
    }

    /// Whether it could not be read: every node was made by a transaction.
    pub(crate) fn is_unread(&self) -> bool {
        self.token == FencingToken(0)
    }

    pub fn read(name: impl Into<Arc<str>>, token: FencingToken, is_ephemeral: bool, data: &[u8]) -> Self {
        let parsed = ContenderData::parse(data);
        let word = || std::str::from_utf8(data).ok().map(str::trim);
        let is_word = |word: &&str| {
            !word.is_empty()
                && word.len() <= LONGEST_WORD
                && word.chars().all(|c| c.is_alphanumeric() || ".:-_".contains(c))
        };
        Self {
            name: name.into(),
            token,
            is_ephemeral,
            foreign: if parsed.state.is_empty() {
                word().filter(is_word).map(str::to_owned)
            } else {
                None
            },
            data: Arc::new(used(parsed)),
        }
    }
}

/// What the operator uses of what a contender says: tenants decide how much all of it is.
fn used(mut said: ContenderData) -> ContenderData {
    said.host = None;
    // Only a contender with a lease duration loses its place so, and the names of ours have 55 bytes.
    let is_ours = |of: &TookOver| of.contender.len() <= LONGEST_WORD;
    said.took_over = said.took_over.filter(is_ours).filter(|_| said.state == "held");
    if let Some(pod) = said.took_over.as_mut().and_then(|of| of.pod.as_mut()) {
        for text in [&mut pod.namespace, &mut pod.uid, &mut pod.node] {
            *text = String::new();
        }
    }
    said
}

// === impl Queue ===

impl Queue {
    /// The contenders in no order. None while there are too many ([`Queue::excess`]).
    pub fn contenders(&self) -> impl ExactSizeIterator<Item = &Contender> {
        self.contenders.values().map(|contender| &**contender)
    }

    pub(crate) fn contender(&self, name: &str) -> Option<&Contender> {
        self.contenders.get(name).map(|contender| &**contender)
    }

    /// Why the queue is not followed, if it is not: then nothing is known of its contenders.
    pub fn excess(&self) -> Option<&Excess> {
        self.excess.as_ref()
    }

    /// Whether children may have come or gone that no event tells of, since the operator may not read them: one of them is
    /// known, or contenders wait although none holds.
    fn is_doubtful(&self) -> bool {
        let is_any = |what: fn(&Contender) -> bool| self.contenders().any(what);
        let is_held = || is_any(|contender| contender.data.is_held());
        is_any(Contender::is_unread) || (is_any(|contender| contender.is_ephemeral) && !is_held())
    }

    /// A queue as another process has seen it.
    pub(crate) fn of(exists: bool, contenders: impl IntoIterator<Item = Contender>) -> Self {
        let contenders = contenders.into_iter();
        let named = contenders.map(|contender| (Arc::clone(&contender.name), Arc::new(contender)));
        Self {
            exists,
            contenders: Arc::new(named.collect()),
            excess: None,
        }
    }

    /// Clients whose place in the queue cannot be told from the names of their nodes: keepers do not hold the lock
    /// beside them.
    pub fn strangers(&self) -> impl Iterator<Item = &str> {
        let strangers = self
            .contenders()
            .filter(|node| node.is_ephemeral && !is_contender(&node.name));
        strangers.map(|node| &*node.name)
    }

    /// Children that are no places in the queue, and stay without a session.
    pub(crate) fn bystanders(&self) -> impl Iterator<Item = &str> {
        let bystanders = self
            .contenders()
            .filter(|node| !node.is_ephemeral && !is_contender(&node.name));
        bystanders.map(|node| &*node.name)
    }

    /// The contenders in the order of the queue, and which of them are first.
    pub fn participants(&self, mode: Mode) -> Vec<Participant> {
        let nodes = self.contenders();
        arrange(
            nodes.map(|node| (node.name.to_string(), node.token, Arc::clone(&node.data))),
            mode,
        )
    }
}

// === impl Excess ===

/// The reason, and what to do about it.
impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mend = "delete what is no contender, and stop the client that creates it; the operator looks again every half \
            minute";
        match self {
            Self::Children(count) => write!(
                f,
                "the lock root has {count} children or more, and the operator follows {CHILDREN} at most: {mend}"
            ),
            Self::Namespace => write!(
                f,
                "the lock roots of the namespace have more than {CHILDREN_OF_NAMESPACE} children together, which is as \
                 many as the operator follows: {mend}"
            ),
            Self::Names => write!(
                f,
                "the names of the lock root's children are longer together than the operator reads: {mend}"
            ),
            Self::Changes => write!(
                f,
                "children of the lock root come, change or go so often that those of the namespace have changed more \
                 than {CHANGES_OF_NAMESPACE} times within {} s, which is as often as the operator follows: stop the \
                 client that changes them; the operator looks again when they change less",
                WINDOW.as_secs()
            ),
            Self::Unlisted(reason) => write!(
                f,
                "the operator could not list the lock root's children ({reason}), and tries again every half minute"
            ),
        }
    }
}

// === impl Picture ===

impl Picture {
    /// One lock; `None` when nothing of it is there.
    pub fn queue(&self, key: &LockKey) -> Option<&Queue> {
        self.queues.get(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.queues.keys()
    }

    /// How many contenders there are in all.
    pub(crate) fn contenders(&self) -> usize {
        self.sizes.values().sum()
    }

    /// How many contenders there are in a namespace.
    pub(crate) fn contenders_of(&self, namespace: &str) -> usize {
        self.sizes.get(namespace).copied().unwrap_or(0)
    }

    /// The locks whose queues are not followed.
    pub(crate) fn given_up(&self) -> impl Iterator<Item = &LockKey> {
        let all = self.queues.iter();
        all.filter(|(_, queue)| queue.excess.is_some())
            .map(|(key, _)| key)
    }

    /// The locks whose children have to be listed again, because events may not tell of all of them.
    pub(crate) fn doubtful(&self) -> impl Iterator<Item = &LockKey> {
        let doubtful = self.queues.iter().filter(|(_, queue)| queue.is_doubtful());
        doubtful.map(|(key, _)| key)
    }

    /// Whether this queue is not followed.
    pub(crate) fn is_given_up(&self, key: &LockKey) -> bool {
        self.queues.get(key).is_some_and(|queue| queue.excess.is_some())
    }

    /// The lock root is there, or not. True when that is news.
    pub(crate) fn set_exists(&mut self, key: &LockKey, exists: bool) -> bool {
        if !exists {
            let Some(queue) = self.queues.get_mut(key) else {
                return false;
            };
            let was = std::mem::replace(&mut queue.exists, false);
            // Without it there is nothing below it.
            queue.excess = None;
            self.forget_if_empty(key);
            return was;
        }
        let queue = self.queues.entry(key.clone()).or_default();
        !std::mem::replace(&mut queue.exists, true)
    }

    /// A lock is like this now. True when that is news.
    pub(crate) fn put_queue(&mut self, key: &LockKey, queue: Queue) -> bool {
        let came = queue.contenders.len();
        let before = self.queues.insert(key.clone(), queue).unwrap_or_default();
        let is_news = self.queue(key) != Some(&before);
        self.count(&key.namespace, before.contenders.len(), came);
        self.forget_if_empty(key);
        is_news
    }

    /// Too much is below the lock root: nothing of it is kept, until [`Picture::take_up`]. True when that is news.
    pub(crate) fn give_up(&mut self, key: &LockKey, excess: Excess) -> bool {
        let queue = self.queues.entry(key.clone()).or_default();
        let is_new = queue.excess.replace(excess).is_none();
        let gone = std::mem::take(&mut queue.contenders).len();
        self.count(&key.namespace, gone, 0);
        is_new
    }

    /// The queue is followed from now on. True when that is news.
    pub(crate) fn take_up(&mut self, key: &LockKey) -> bool {
        let queue = self.queues.get_mut(key);
        queue.is_some_and(|queue| queue.excess.take().is_some())
    }

    /// A contender is there with these data. True when that is news. Where it is one too many, the queue is given up.
    pub fn put(&mut self, key: &LockKey, contender: Contender) -> bool {
        let of_namespace = self.sizes.get(&key.namespace).copied().unwrap_or(0);
        let queue = self.queues.entry(key.clone()).or_default();
        if queue.excess.is_some() {
            return false;
        }
        let count = queue.contenders.len();
        let is_new = match queue.contenders.get(&contender.name) {
            Some(old) if **old == contender => return false,
            Some(_) => false,
            None if count >= CHILDREN => return self.give_up(key, Excess::Children(count + 1)),
            None if of_namespace >= CHILDREN_OF_NAMESPACE => return self.give_up(key, Excess::Namespace),
            None => true,
        };
        let name = Arc::clone(&contender.name);
        Arc::make_mut(&mut queue.contenders).insert(name, Arc::new(contender));
        if is_new {
            self.count(&key.namespace, 0, 1);
        }
        true
    }

    /// A contender is gone. True when that is news.
    pub(crate) fn remove(&mut self, key: &LockKey, name: &str) -> bool {
        let Some(queue) = self.queues.get_mut(key) else {
            return false;
        };
        if !queue.contenders.contains_key(name) {
            return false;
        }
        Arc::make_mut(&mut queue.contenders).remove(name);
        self.count(&key.namespace, 1, 0);
        self.forget_if_empty(key);
        true
    }

    fn count(&mut self, namespace: &Arc<str>, gone: usize, came: usize) {
        let size = self.sizes.entry(Arc::clone(namespace)).or_default();
        *size = (*size + came).saturating_sub(gone);
        if *size == 0 {
            self.sizes.remove(namespace);
        }
    }

    /// The locks in which this picture and an older one differ.
    pub(crate) fn differences(&self, old: &Self) -> HashSet<LockKey> {
        let differs = |key: &&LockKey| self.queue(key) != old.queue(key);
        let all = self.keys().chain(old.keys());
        all.filter(differs).cloned().collect()
    }

    fn forget_if_empty(&mut self, key: &LockKey) {
        if self
            .queues
            .get(key)
            .is_some_and(|queue| !queue.exists && queue.contenders.is_empty() && queue.excess.is_none())
        {
            self.queues.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
