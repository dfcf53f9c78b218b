//! Ensembles that locks name in place of the operator's. There is one session for each namespace and setting: opened when
//! the first lock names it, closed when no lock does any more.
//!
//! There the operator authenticates only with the credentials in the Secret. It never shows its own password to an
//! ensemble that a user may name in a lock. It connects only to hosts on the administrator's list
//! ([`crate::zookeeper::allowed_hosts`]), follows a limited number of ensembles at once ([`Places`]), and uses a
//! process for each ([`crate::zookeeper::sandbox`]).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use kube::ResourceExt;
use kube::runtime::watcher::{Error, Event};
use lockkeeper_crds::DistributedLock;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::lock_key::LockKey;
use crate::problem::Problem;
use crate::zookeeper::client::Way;
use crate::zookeeper::ensemble::Ensemble;
use crate::zookeeper::reachability::Reachability;

mod access;
mod follow;
mod places;
mod source;

use follow::{Follow, Known, Trouble};
pub(crate) use places::Places;
use source::lock;
pub(crate) use source::{Shared, Source};

/// The ensembles that locks name in place of the operator's.
#[derive(Debug)]
pub(crate) struct OtherEnsembles {
    shared: Shared,
    known: Mutex<HashMap<Arc<Source>, Other>>,
    named: Mutex<HashMap<LockKey, Arc<Source>>>,
    /// Locks that a list under way has named so far.
    listed: Mutex<Option<HashSet<LockKey>>>,
}

#[derive(Debug)]
struct Other {
    users: Arc<Mutex<HashSet<LockKey>>>,
    state: watch::Receiver<Known>,
    /// None where it may not be followed.
    task: Option<AbortHandle>,
}

/// How the operator stands with the ensemble of a lock.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It does not know yet.
    Unsure,
    /// Connected, and the picture is fresh.
    Up {
        ensemble: Arc<Ensemble>,
        way: Way,
        /// What is wrong with the Secrets, so that new pods cannot reach it. The deletion of a namespace deletes its
        /// Secrets too, and the operator finishes its work there with the former identities.
        problem: Option<Problem>,
    },
    /// There is no way to it.
    Out(Problem),
    /// As [`Standing::Out`], and the credentials are gone, or the operator may not go there: the
    /// operator cannot maintain the lock any more.
    Orphaned(Problem),
}

// === impl OtherEnsembles ===

impl OtherEnsembles {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            known: Mutex::default(),
            named: Mutex::default(),
            listed: Mutex::default(),
        }
    }

    /// Takes in an event about locks, before they are reconciled.
    pub(crate) fn hear(&self, event: &Result<Event<DistributedLock>, Error>) {
        match event {
            Ok(Event::Init) => *lock(&self.listed) = Some(HashSet::new()),
            Ok(Event::InitApply(one) | Event::Apply(one)) => {
                if let Some(listed) = &mut *lock(&self.listed) {
                    listed.insert(key(one));
                }
                // An invalid setting is reported when the lock is reconciled.
                self.name(key(one), Source::of(one, &self.shared.own).unwrap_or_default());
            }
            Ok(Event::Delete(one)) => self.name(key(one), None),
            Ok(Event::InitDone) => {
                let listed = lock(&self.listed).take().unwrap_or_default();
                for gone in self.users().difference(&listed) {
                    self.name(gone.clone(), None);
                }
            }
            Err(_) => {}
        }
    }

    /// How the operator stands with what a lock names.
    pub(crate) fn standing(&self, source: &Source) -> Standing {
        let known = lock(&self.known)
            .get(source)
            .map(|other| other.state.borrow().clone());
        let Known { ensemble, trouble } = known.unwrap_or_default();
        let Some(ensemble) = ensemble else {
            return match trouble {
                None => Standing::Unsure,
                Some(Trouble::Problem(problem)) => Standing::Out(problem),
                Some(Trouble::Orphaned(problem)) => Standing::Orphaned(problem),
            };
        };
        let problem = trouble.map(Trouble::into_problem);
        let reachability = ensemble.reachability.borrow().clone();
        match reachability {
            Reachability::Up(way) => Standing::Up {
                ensemble,
                way,
                problem,
            },
            Reachability::Unsure => Standing::Unsure,
            Reachability::Lost { problem: lost, .. } => Standing::Out(problem.unwrap_or(lost)),
        }
    }

    /// Whether the operator may talk to what a lock names.
    ///
    /// # Errors
    /// Which server is not on the administrator's list.
    pub(crate) fn permit(&self, source: &Source) -> Result<(), Problem> {
        source.permit(&self.shared.hosts)
    }

    /// Which ensemble that is, if it was ever reached.
    pub(crate) fn id(&self, source: &Source) -> Option<Uuid> {
        let known = lock(&self.known);
        let ensemble = known.get(source)?.state.borrow().ensemble.clone();
        ensemble?.view.id()
    }

    /// The ensembles of a namespace in which its own identity counts.
    pub(crate) fn with_identity_of(&self, namespace: &str) -> Vec<(Source, Standing)> {
        let sources: Vec<_> = lock(&self.known)
            .keys()
            .filter(|source| source.namespace == namespace && source.has_own_identities())
            .map(|source| Source::clone(source))
            .collect();
        let with_standing = |source: Source| {
            let standing = self.standing(&source);
            (source, standing)
        };
        sources.into_iter().map(with_standing).collect()
    }

    pub(crate) fn users_of(&self, source: &Source) -> HashSet<LockKey> {
        let known = lock(&self.known);
        known
            .get(source)
            .map(|other| lock(&other.users).clone())
            .unwrap_or_default()
    }

    fn users(&self) -> HashSet<LockKey> {
        lock(&self.named).keys().cloned().collect()
    }

    /// A lock names this, and nothing else any more.
    fn name(&self, key: LockKey, source: Option<Source>) {
        let (mut known, mut named) = (lock(&self.known), lock(&self.named));
        if let Some(old) = named.get(&key) {
            if source.as_ref() == Some(&**old) {
                return;
            }
            let is_used = known.get(old).is_some_and(|other| {
                let mut users = lock(&other.users);
                users.remove(&key);
                !users.is_empty()
            });
            if !is_used {
                known.remove(old);
            }
            named.remove(&key);
        }
        let Some(source) = source.map(Arc::new) else {
            return;
        };
        let other = known
            .entry(Arc::clone(&source))
            .or_insert_with_key(|source| Other::start(Source::clone(source), self.shared.clone()));
        lock(&other.users).insert(key.clone());
        let (source, _) = known.get_key_value(&source).expect("it was put there");
        named.insert(key, Arc::clone(source));
    }
}

// === impl Other ===

impl Other {
    fn start(source: Source, shared: Shared) -> Self {
        let users = Arc::default();
        let (sender, state) = watch::channel(Known::default());
        let task = match source.permit(&shared.hosts) {
            Ok(()) => {
                let follow = Follow::new(source, shared, Arc::clone(&users), sender);
                Some(tokio::spawn(follow.run()).abort_handle())
            }
            // Its Secrets are not read. Its objects can be deleted, and their nodes stay.
            Err(problem) => {
                sender.send_replace(Known {
                    ensemble: None,
                    trouble: Some(Trouble::Orphaned(problem)),
                });
                None
            }
        };
        Self { users, state, task }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn key(one: &DistributedLock) -> LockKey {
    LockKey::new(one.namespace().unwrap_or_default(), one.name_any())
}
