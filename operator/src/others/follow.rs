//! One ensemble that is none of the operator's: its Secrets read again and again, and a session as they
//! say.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access::{self, Access, unusable};
use super::{Shared, Source, lock};
use crate::ensemble::Ensemble;
use crate::error::Problem;
use crate::layout::{Layout, LockKey};
use crate::reach::Reach;
use crate::tree::Tree;

/// Time between two looks at Secrets. They are not watched: for that the operator would have to be allowed
/// to list those of all namespaces.
const LOOK: Duration = Duration::from_secs(10);

/// The same while something is wrong with them, and somebody is at work on it.
const LOOK_AFTER_TROUBLE: Duration = Duration::from_secs(2);

/// What is known of the way to an ensemble.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// As the Secrets said when they were in order last.
    pub ensemble: Option<Arc<Ensemble>>,
    /// What is wrong with them now.
    pub problem: Option<Problem>,
    /// The credentials do not exist.
    pub is_orphaned: bool,
}

pub(super) struct Follow {
    source: Source,
    shared: Shared,
    users: Arc<Mutex<HashSet<LockKey>>>,
    state: watch::Sender<Known>,
    access: Option<Access>,
    /// How the operator stands with the session.
    reach: Option<watch::Receiver<Reach>>,
    /// Of the session.
    tasks: JoinSet<()>,
}

/// Why the Secrets give no access.
enum Unread {
    /// Nobody can say now.
    Unknown(kube::Error),
    /// Somebody has to mend it.
    Problem(Problem),
    /// The same: the credentials do not exist.
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
            reach: None,
            tasks: JoinSet::new(),
        }
    }

    /// Until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let read = self.read().await;
            let (problem, is_orphaned) = match read {
                Ok(access) if self.access.as_ref() == Some(&access) => (None, false),
                Ok(access) => (self.connect(access).err(), false),
                Err(Unread::Problem(problem)) => (Some(problem), false),
                Err(Unread::Missing(problem)) => (Some(problem), true),
                Err(Unread::Unknown(error)) => {
                    tracing::warn!(%error, namespace = self.source.namespace, "Failed to read a Secret; trying again");
                    self.wait(LOOK_AFTER_TROUBLE).await;
                    continue;
                }
            };
            let pause = if problem.is_some() {
                LOOK_AFTER_TROUBLE
            } else {
                LOOK
            };
            let is_news = self.state.send_if_modified(|known| {
                let is_news = known.problem != problem || known.is_orphaned != is_orphaned;
                known.problem = problem;
                known.is_orphaned = is_orphaned;
                is_news
            });
            if is_news {
                self.announce();
            }
            self.wait(pause).await;
        }
    }

    /// Waits, and passes on how the operator stands with the ensemble.
    async fn wait(&mut self, pause: Duration) {
        let mut reach = self.reach.take();
        let changes = async {
            let Some(reach) = &mut reach else {
                return std::future::pending().await;
            };
            while reach.changed().await.is_ok() {
                if !matches!(*reach.borrow_and_update(), Reach::Unsure) {
                    self.announce();
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            () = changes => {}
            () = tokio::time::sleep(pause) => {}
        }
        self.reach = reach;
    }

    /// A session as the Secrets say now, in place of the one before.
    fn connect(&mut self, access: Access) -> Result<(), Problem> {
        let zookeeper = access.zookeeper(&self.source)?;
        let chroot = zookeeper.connect_string().chroot();
        let layout = Layout::new(format!("{chroot}{}", self.shared.root));
        let tree = Tree::of_namespace(layout, &self.source.namespace, &access.identities);
        tracing::info!(
            namespace = self.source.namespace,
            connect = self.source.connect,
            "Following an ensemble that locks name"
        );
        let mut tasks = JoinSet::new();
        let changes = Arc::clone(&self.shared.changes);
        let ensemble = Ensemble::follow(zookeeper, tree, false, changes, &mut tasks);
        // With it goes what followed the session before.
        self.tasks = tasks;
        self.access = Some(access);
        self.reach = Some(ensemble.reach.clone());
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
        let api = Api::<Secret>::namespaced(self.shared.client.clone(), namespace);
        match api.get_opt(name).await {
            Ok(Some(secret)) => Ok(Ok(secret)),
            Ok(None) => Ok(Err(unusable(format!(
                "Secret {name}, which zookeeper.{field} names, does not exist in namespace {namespace}"
            )))),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                Err(Unread::Problem(unusable(format!(
                    "the operator may not read Secret {name}: set zookeeper.otherEnsembles of its chart to true"
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
