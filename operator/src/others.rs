//! Ensembles that locks name in place of the operator's. One session for each namespace and setting: made
//! when the first lock names it, dropped when none does any more.
//!
//! The operator is nobody there but who the Secret says: its own password is no business of an ensemble
//! that anybody may name in a lock. It talks to hosts on the administrator's list alone ([`Hosts`]), to so many ensembles
//! at once ([`Places`]), and by a process for each ([`crate::session`]).

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher::{Error, Event};
use kube::{Client, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::zookeeper::{ConnectString, InvalidConnectString};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::changes::Changes;
use crate::ensemble::Ensemble;
use crate::error::Problem;
use crate::layout::LockKey;
use crate::reach::Reach;
use crate::secrets::{self, Secrets};
use crate::way::Way;

mod access;
mod follow;
mod hosts;
mod places;

pub(crate) use access::SESSION_TIMEOUT;
use follow::{Follow, Known};
pub use hosts::{Host, Hosts, guard};
pub use places::Places;

/// What a lock says of its ensemble. All that name the same share a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Namespace of the lock, and of the Secrets.
    pub namespace: String,
    /// Where the ensemble is.
    pub connect: String,
    /// Secret with the identities.
    pub credentials: String,
    /// Secret with the certificates.
    pub tls: Option<String>,
}

/// The ensembles that are none of the operator's.
#[derive(Debug)]
pub struct Others {
    shared: Shared,
    known: Mutex<HashMap<Arc<Source>, Other>>,
    /// What each lock names.
    named: Mutex<HashMap<LockKey, Arc<Source>>>,
    /// Locks that a list under way has named so far.
    listed: Mutex<Option<HashSet<LockKey>>>,
}

/// What is needed to follow one.
#[derive(Clone)]
pub struct Shared {
    /// Where Secrets are read.
    pub client: Client,
    /// The identities of the namespaces.
    pub secrets: Arc<Secrets>,
    /// Where locks are that somebody has to look at.
    pub changes: Arc<Changes>,
    /// The operator's ensemble.
    pub own: ConnectString,
    /// Where everything is, below the chroot.
    pub root: String,
    /// Which may be named.
    pub hosts: Arc<Hosts>,
    /// How many may be followed at once.
    pub places: Arc<Places>,
    /// The operator's own program, for the processes of the sessions.
    pub program: PathBuf,
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
pub enum Standing {
    /// It does not know yet.
    Unsure,
    /// Connected, and the picture is fresh.
    Up {
        /// The ensemble.
        ensemble: Arc<Ensemble>,
        /// The way there.
        way: Way,
        /// What is wrong with the Secrets, so that pods that are made now have no way to it. Who deletes a
        /// namespace deletes its Secrets too, and what is left to do is done as who one was.
        problem: Option<Problem>,
    },
    /// There is no way to it.
    Out(Problem),
    /// As [`Standing::Out`], and the credentials are gone, or the operator may not go there: nobody can look after the
    /// lock any more.
    Orphaned(Problem),
}

// === impl Source ===

impl Source {
    /// What a lock says; `None` for the operator's own ensemble, also by its name.
    ///
    /// # Errors
    /// When it names no ensemble.
    pub fn of(lock: &DistributedLock, own: &ConnectString) -> Result<Option<Self>, Problem> {
        let Some(spec) = &lock.spec.zookeeper else {
            return Ok(None);
        };
        let connect: ConnectString = spec.connect.parse().map_err(|error: InvalidConnectString| {
            Problem::new(Reason::InvalidSpec, format!("zookeeper.connect: {error}"))
        })?;
        if connect == *own && spec.credentials_secret.is_none() {
            return Ok(None);
        }
        let name = |secret: &Option<lockkeeper_crds::lock::SecretRef>| Some(secret.as_ref()?.name.clone());
        Ok(Some(Self {
            namespace: lock.namespace().unwrap_or_default(),
            connect: connect.to_string(),
            credentials: name(&spec.credentials_secret).unwrap_or_else(|| secrets::NAME.to_owned()),
            tls: name(&spec.tls_secret),
        }))
    }

    fn permit(&self, hosts: &Hosts) -> Result<(), Problem> {
        let connect = self.connect.parse().map_err(|error: InvalidConnectString| {
            Problem::new(Reason::InvalidSpec, format!("zookeeper.connect: {error}"))
        })?;
        hosts.check(&connect)
    }

    /// Whether its identities are those that the operator makes.
    fn has_own_identities(&self) -> bool {
        self.credentials == secrets::NAME
    }
}

// === impl Others ===

impl Others {
    /// None yet.
    pub fn new(shared: Shared) -> Self {
        Self {
            shared,
            known: Mutex::default(),
            named: Mutex::default(),
            listed: Mutex::default(),
        }
    }

    /// Takes in what the API server says of locks, before anybody reconciles them.
    pub fn hear(&self, event: &Result<Event<DistributedLock>, Error>) {
        match event {
            Ok(Event::Init) => *lock(&self.listed) = Some(HashSet::new()),
            Ok(Event::InitApply(one) | Event::Apply(one)) => {
                if let Some(listed) = &mut *lock(&self.listed) {
                    listed.insert(key(one));
                }
                // What names no ensemble at all is said when it is reconciled.
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
    pub fn standing(&self, source: &Source) -> Standing {
        let known = lock(&self.known)
            .get(source)
            .map(|other| other.state.borrow().clone());
        let Known {
            ensemble,
            problem,
            is_orphaned,
        } = known.unwrap_or_default();
        let Some(ensemble) = ensemble else {
            return match problem {
                None => Standing::Unsure,
                Some(problem) if is_orphaned => Standing::Orphaned(problem),
                Some(problem) => Standing::Out(problem),
            };
        };
        let reach = ensemble.reach.borrow().clone();
        match reach {
            Reach::Up(way) => Standing::Up {
                ensemble,
                way,
                problem,
            },
            Reach::Unsure => Standing::Unsure,
            Reach::Lost { problem: lost, .. } => Standing::Out(problem.unwrap_or(lost)),
        }
    }

    /// Whether the operator may talk to what a lock names.
    ///
    /// # Errors
    /// Which server is not on the administrator's list.
    pub fn permit(&self, source: &Source) -> Result<(), Problem> {
        source.permit(&self.shared.hosts)
    }

    /// Which ensemble that is, if it was ever reached.
    pub fn id(&self, source: &Source) -> Option<Uuid> {
        let known = lock(&self.known);
        let ensemble = known.get(source)?.state.borrow().ensemble.clone();
        ensemble?.view.id()
    }

    /// The ensembles of a namespace in which its own identity counts.
    pub fn with_identity_of(&self, namespace: &str) -> Vec<(Source, Standing)> {
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

    /// The locks that name this.
    pub fn users_of(&self, source: &Source) -> HashSet<LockKey> {
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
            // No Secret of it is read. Its objects may go, and leave their nodes.
            Err(problem) => {
                sender.send_replace(Known {
                    problem: Some(problem),
                    is_orphaned: true,
                    ..Known::default()
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

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

fn key(one: &DistributedLock) -> LockKey {
    LockKey::new(one.namespace().unwrap_or_default(), one.name_any())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
