//! The identity of each namespace, kept in a Secret there: made when a lock needs it, made again when
//! somebody deletes it, rotated when somebody asks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures_util::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::{Mutex, mpsc, watch};

use crate::identity::Identity;

/// Name of the Secret, in every namespace that has locks.
pub const NAME: &str = "lockkeeper-zookeeper";

/// Key with the identity in use, as the sidecar's `--auth-file` reads it.
pub const AUTH: &str = "auth";

/// Key with the identity before the last rotation: its pods go on until they are made anew.
pub const PREVIOUS: &str = "previous";

/// Annotation on the Secret by which a user asks for a rotation, whatever its value.
pub const ROTATE: &str = "lockkeeper.io/rotate";

/// The identities that a namespace's locks are open to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// The one in use, and the one before.
    pub all: Vec<Identity>,
    /// Whether somebody asks for a new one.
    pub is_rotation_asked: bool,
}

/// A Secret that is not what it should be, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key} of Secret {NAME} {problem}; delete the Secret and it is made anew")]
pub struct UnusableSecret {
    key: &'static str,
    problem: String,
}

/// All Secrets of that name.
#[derive(Debug)]
pub struct Secrets {
    known: RwLock<HashMap<String, Result<Identities, UnusableSecret>>>,
    changed: mpsc::UnboundedSender<String>,
    is_ready: watch::Sender<bool>,
    /// One Secret is made at a time, however many locks of its namespace ask for it.
    making: Mutex<()>,
}

// === impl Identities ===

impl Identities {
    /// Reads a Secret.
    ///
    /// # Errors
    /// When a key is missing or holds something else.
    pub fn of(secret: &Secret) -> Result<Self, UnusableSecret> {
        let namespace = secret.namespace().unwrap_or_default();
        let read = |key| {
            let data = secret.data.as_ref()?.get(key)?;
            let unusable = |problem: String| UnusableSecret { key, problem };
            let text = std::str::from_utf8(&data.0).map_err(|_| unusable("is not text".into()));
            Some(text.and_then(|text| {
                let identity = Identity::parse(text).map_err(|error| unusable(error.to_string()))?;
                if !identity.is_of(&namespace) {
                    return Err(unusable(format!("must hold an identity of ns-{namespace}")));
                }
                Ok(identity)
            }))
        };
        let missing = UnusableSecret {
            key: AUTH,
            problem: "is missing".into(),
        };
        let mut all = vec![read(AUTH).ok_or(missing)??];
        all.extend(read(PREVIOUS).transpose()?);
        Ok(Self {
            all,
            is_rotation_asked: secret.annotations().contains_key(ROTATE),
        })
    }

    /// After a rotation: a new one, and the one that was in use.
    fn rotated(&self, namespace: &str) -> Self {
        Self {
            all: vec![Identity::generate(namespace), self.all[0].clone()],
            is_rotation_asked: false,
        }
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        [AUTH, PREVIOUS]
            .into_iter()
            .zip(&self.all)
            .map(|(key, identity)| (key.to_owned(), ByteString(identity.to_line().into_bytes())))
            .collect()
    }
}

// === impl Secrets ===

impl Secrets {
    /// Knows nothing yet. The receiver gets the namespaces whose Secret changed.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (changed, namespaces) = mpsc::unbounded_channel();
        let secrets = Self {
            known: RwLock::default(),
            changed,
            is_ready: watch::Sender::new(false),
            making: Mutex::default(),
        };
        (secrets, namespaces)
    }

    /// The identities of a namespace; `None` when it has no Secret.
    pub fn of(&self, namespace: &str) -> Option<Result<Identities, UnusableSecret>> {
        self.read().get(namespace).cloned()
    }

    /// True once all Secrets are known.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.is_ready.subscribe()
    }

    /// Makes the Secret of a namespace, or rotates the identity in it. What is there already, by
    /// another task or replica, is left alone.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn ensure(&self, client: &Client, namespace: &str) -> Result<(), kube::Error> {
        let _making = self.making.lock().await;
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let secret = match self.of(namespace) {
            None => {
                let identities = Identities {
                    all: vec![Identity::generate(namespace)],
                    is_rotation_asked: false,
                };
                match api.create(&PostParams::default(), &secret(&identities)).await {
                    Ok(secret) => secret,
                    // Not seen yet.
                    Err(kube::Error::Api(status)) if status.is_already_exists() => api.get(NAME).await?,
                    Err(error) => return Err(error),
                }
            }
            Some(Ok(identities)) if identities.is_rotation_asked => {
                let patch = json!({
                    "metadata": {"annotations": {ROTATE: null}},
                    "data": identities.rotated(namespace).data(),
                });
                api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch))
                    .await?
            }
            Some(_) => return Ok(()),
        };
        self.put(&secret);
        Ok(())
    }

    /// Follows the API server; to be run as a task. Ends with its watch: never.
    pub async fn follow(&self, client: Client) {
        let api: Api<Secret> = Api::all(client);
        let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let mut events = watcher(api, config).default_backoff().boxed();
        let mut first = HashMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => first = HashMap::new(),
                Ok(Event::InitApply(secret)) => {
                    first.insert(secret.namespace().unwrap_or_default(), Identities::of(&secret));
                }
                Ok(Event::InitDone) => {
                    let new = std::mem::take(&mut first);
                    let old = std::mem::replace(&mut *self.write(), new.clone());
                    let namespaces = new.keys().chain(old.keys());
                    for namespace in namespaces.filter(|name| new.get(*name) != old.get(*name)) {
                        self.announce(namespace);
                    }
                    self.is_ready.send_replace(true);
                }
                Ok(Event::Apply(secret)) => self.put(&secret),
                Ok(Event::Delete(secret)) => {
                    let namespace = secret.namespace().unwrap_or_default();
                    self.write().remove(&namespace);
                    self.announce(&namespace);
                }
                Err(error) => tracing::warn!(%error, "Failed to watch Secrets; trying again"),
            }
        }
    }

    fn put(&self, secret: &Secret) {
        let namespace = secret.namespace().unwrap_or_default();
        let identities = Identities::of(secret);
        let old = self.write().insert(namespace.clone(), identities.clone());
        if old != Some(identities) {
            self.announce(&namespace);
        }
    }

    fn announce(&self, namespace: &str) {
        // Nobody listens during the shutdown only.
        let _ = self.changed.send(namespace.to_owned());
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Result<Identities, UnusableSecret>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Result<Identities, UnusableSecret>>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn secret(identities: &Identities) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some([("app.kubernetes.io/managed-by".to_owned(), "lockkeeper".to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some(identities.data()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_namespace(identities: &Identities) -> Secret {
        let mut secret = secret(identities);
        secret.metadata.namespace = Some("shop".into());
        secret
    }

    #[test]
    fn after_a_rotation_the_identity_before_still_counts_and_the_one_before_that_does_not() {
        let first = Identities {
            all: vec![Identity::generate("shop")],
            is_rotation_asked: false,
        };
        let second = first.rotated("shop");
        let third = second.rotated("shop");
        for identities in [&first, &second, &third] {
            assert_eq!(Identities::of(&in_namespace(identities)).as_ref(), Ok(identities));
        }
        assert_eq!(second.all[1], first.all[0]);
        assert!(!third.all.contains(&first.all[0]));
    }

    #[test]
    fn an_identity_of_another_namespace_is_not_accepted() {
        let identities = Identities {
            all: vec![Identity::generate("bank")],
            is_rotation_asked: false,
        };
        let error = Identities::of(&in_namespace(&identities)).unwrap_err().to_string();
        assert!(error.contains("must hold an identity of ns-shop"), "{error}");
        let error = Identities::of(&Secret::default()).unwrap_err().to_string();
        assert!(error.contains("auth of Secret lockkeeper-zookeeper is missing"), "{error}");
    }
}
