//! Follows one ensemble that locks name: reads its Secrets again and again, and keeps a session as they say.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use lockkeeper_crds::lock::Reason;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access::{self, Access, unusable};
use super::places::Place;
use super::source::{Shared, Source, lock};
use crate::identity::Identity;
use crate::kubernetes::names::is_subdomain;
use crate::kubernetes::objects::SecretPart;
use crate::lock_key::LockKey;
use crate::problem::Problem;
use crate::zookeeper::ensemble::Ensemble;
use crate::zookeeper::reachability::Reachability;
use crate::zookeeper::sandbox::wire::Hello;

/// Time between two looks at Secrets. They are not watched: for that the operator would have to be allowed
/// to list those of all namespaces.
const LOOK: Duration = Duration::from_secs(10);

/// The same while something is wrong with them: a user may be correcting it.
const LOOK_AFTER_TROUBLE: Duration = Duration::from_secs(2);

/// What is known of the way to an ensemble.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// As the Secrets said when they were in order last.
    pub(super) ensemble: Option<Arc<Ensemble>>,
    pub(super) trouble: Option<Trouble>,
}

/// What is wrong with the way to an ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A user has to correct it.
    Problem(Problem),
    /// The credentials do not exist, or the operator may not go there.
    Orphaned(Problem),
}

impl Trouble {
    pub(super) fn into_problem(self) -> Problem {
        match self {
            Self::Problem(problem) | Self::Orphaned(problem) => problem,
        }
    }
}

pub(super) struct Follow {
    source: Source,
    shared: Shared,
    users: Arc<Mutex<HashSet<LockKey>>>,
    state: watch::Sender<Known>,
    access: Option<Access>,
    /// How the operator stands with the session.
    reachability: Option<watch::Receiver<Reachability>>,
    /// Of the session.
    tasks: JoinSet<()>,
}

/// Why the Secrets give no access.
enum Unread {
    /// Not known now.
    Unknown(kube::Error),
    /// A user has to correct it.
    Problem(Problem),
    /// As `Problem`: the credentials do not exist.
    Missing(Problem),
}

impl Follow {
    pub(super) fn new(
        source: Source,
        shared: Shared,
        users: Arc<Mutex<HashSet<LockKey>>>,
        state: watch::Sender<Known>,
    ) -> Self {
        Self {
            source,
            shared,
            users,
            state,
            access: None,
            reachability: None,
            tasks: JoinSet::new(),
        }
    }

    /// Until it is dropped.
    pub(super) async fn run(mut self) {
        let _place = self.place().await;
        loop {
            let read = self.read().await;
            let trouble = match read {
                Ok(access) if self.access.as_ref() == Some(&access) => None,
                Ok(access) => self.connect(access).err().map(Trouble::Problem),
                Err(Unread::Problem(problem)) => Some(Trouble::Problem(problem)),
                Err(Unread::Missing(problem)) => Some(Trouble::Orphaned(problem)),
                Err(Unread::Unknown(error)) => {
                    tracing::warn!(%error, namespace = self.source.namespace, "Failed to read a Secret; trying again");
                    self.wait(LOOK_AFTER_TROUBLE).await;
                    continue;
                }
            };
            let pause = if trouble.is_some() {
                LOOK_AFTER_TROUBLE
            } else {
                LOOK
            };
            let is_news = self.state.send_if_modified(|known| {
                let is_news = known.trouble != trouble;
                known.trouble = trouble;
                is_news
            });
            if is_news {
                self.announce();
            }
            self.wait(pause).await;
        }
    }

    /// Waits for a place, and reports that it waits. No Secret is read before.
    async fn place(&mut self) -> Place {
        let places = Arc::clone(&self.shared.places);
        let taking = places.take(&self.source.namespace);
        let mut taking = std::pin::pin!(taking);
        if let Some(place) = taking.as_mut().now_or_never() {
            return place;
        }
        let message = format!(
            "all {} sessions that the operator may have with other ensembles are taken, of which a namespace gets half: \
             raise zookeeper.otherEnsembles.sessions of its chart, or let locks name the same ensemble and Secrets",
            places.count()
        );
        let problem = Problem::new(Reason::EnsembleNotAllowed, message);
        let trouble = Trouble::Problem(problem);
        self.state.send_modify(|known| known.trouble = Some(trouble));
        self.announce();
        taking.await
    }

    /// Waits, and passes on how the operator stands with the ensemble.
    async fn wait(&mut self, pause: Duration) {
        let mut reachability = self.reachability.take();
        let changes = async {
            let Some(reachability) = &mut reachability else {
                return std::future::pending().await;
            };
            while reachability.changed().await.is_ok() {
                if !matches!(*reachability.borrow_and_update(), Reachability::Unsure) {
                    self.announce();
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            () = changes => {}
            () = tokio::time::sleep(pause) => {}
        }
        self.reachability = reachability;
    }

    /// A session as the Secrets say now, in place of the one before.
    fn connect(&mut self, access: Access) -> Result<(), Problem> {
        let Source {
            namespace, connect, ..
        } = &self.source;
        // What is wrong with certificates is said here, by their keys.
        let zookeeper = access.zookeeper(&self.source)?;
        let servers = zookeeper.connect_string();
        let hello = Hello {
            connect: connect.clone(),
            unnamed: self.shared.hosts.unnamed(servers),
            root: format!("{}{}", servers.chroot(), self.shared.root),
            namespace: namespace.clone(),
            identities: access.identities.iter().map(Identity::to_line).collect(),
            tls: access.tls(),
        };
        tracing::info!(namespace, connect, "Following an ensemble that locks name");
        let mut tasks = JoinSet::new();
        let (program, changes) = (self.shared.program.clone(), Arc::clone(&self.shared.changes));
        let ensemble = Ensemble::apart(servers.clone(), program, hello, changes, &mut tasks);
        // This drops the tasks of the previous session.
        self.tasks = tasks;
        self.access = Some(access);
        self.reachability = Some(ensemble.reachability.clone());
        self.state.send_modify(|known| known.ensemble = Some(ensemble));
        Ok(())
    }

    async fn read(&self) -> Result<Access, Unread> {
        let Source {
            namespace,
            credentials,
            tls,
            ..
        } = &self.source;
        let identities = if self.source.has_own_identities() {
            match self.shared.secrets.of(namespace) {
                Some(Ok(identities)) => identities.all,
                Some(Err(error)) => return Err(Unread::Problem(unusable(error.to_string()))),
                None => {
                    let message = "the Secret of the namespace is missing, and is being made".to_owned();
                    return Err(Unread::Missing(unusable(message)));
                }
            }
        } else {
            let secret = self.secret(credentials, "credentialsSecret").await?;
            let secret = secret.map_err(Unread::Missing)?;
            access::identities(&secret, credentials).map_err(Unread::Problem)?
        };
        let tls = match tls {
            None => None,
            Some(name) => {
                let secret = self.secret(name, "tlsSecret").await?;
                let secret = secret.map_err(Unread::Problem)?;
                Some(access::tls(&secret, name).map_err(Unread::Problem)?)
            }
        };
        Ok(Access { identities, tls })
    }

    /// A Secret, or that it does not exist.
    async fn secret(&self, name: &str, field: &str) -> Result<Result<Secret, Problem>, Unread> {
        let namespace = &self.source.namespace;
        if !is_subdomain(name) {
            return Err(Unread::Problem(unusable(format!(
                "zookeeper.{field} must name a Secret, in lower case letters, digits, '-' and '.'"
            ))));
        }
        let api = Api::<SecretPart>::namespaced(self.shared.client.clone(), namespace);
        match api.get_opt(name).await {
            Ok(Some(secret)) => Ok(Ok(secret.into())),
            Ok(None) => Ok(Err(unusable(format!(
                "Secret {name}, which zookeeper.{field} names, does not exist in namespace {namespace}"
            )))),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                Err(Unread::Problem(unusable(format!(
                    "the operator may not read Secret {name}: give it the right to get Secrets, as its chart does for \
                     zookeeper.otherEnsembles.hosts, and if secrets.names or secrets.namespaces is set there, name it in them"
                ))))
            }
            Err(error) => Err(Unread::Unknown(error)),
        }
    }

    fn announce(&self) {
        let users = lock(&self.users).clone();
        self.shared.changes.announce(users);
    }
}
