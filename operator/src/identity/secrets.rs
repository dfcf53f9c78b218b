//! The Secrets with the identities of namespaces: what they hold, what they should hold instead, and whether they are
//! being changed. [`crate::controller::provision_identity`] decides when.
//!
//! The Secret holds the identity in use and the previous one, and a keeper authenticates with both. So pods of two
//! successive generations can read each other's contenders. The previous identity is valid until the next rotation, which
//! waits for pods that do not know the identity in use. Deleting the Secret rotates
//! the identity without that wait, as long as this process has seen its content.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{mpsc, watch};

use super::namespace_secret::{Certificates, Identities, NAME, UnusableSecret};
use crate::kubernetes::objects::{PAGE, SecretPart};

mod change;

pub(crate) use change::Change;

/// All Secrets of that name.
#[derive(Debug)]
pub(crate) struct Secrets {
    known: RwLock<HashMap<String, Known>>,
    /// The content of deleted Secrets, until they are created again.
    deleted: Mutex<HashMap<String, Identities>>,
    /// Namespaces whose identities are being changed: they are announced when that is over.
    changing: Mutex<HashSet<String>>,
    changed: mpsc::UnboundedSender<String>,
    is_ready: watch::Sender<bool>,
    certificates: Certificates,
}

/// A Secret as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    identities: Result<Identities, UnusableSecret>,
    /// Its `resourceVersion`.
    version: Option<String>,
}

/// A change of a namespace's identities, until it is dropped.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    secrets: &'a Secrets,
    namespace: &'a str,
}

// === impl Changing ===

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.secrets.changing().remove(self.namespace);
        self.secrets.announce(self.namespace);
    }
}

// === impl Secrets ===

impl Secrets {
    /// Knows nothing yet. All Secrets get these certificates. The receiver gets the namespaces whose Secret
    /// changed.
    pub(crate) fn new(certificates: Certificates) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (changed, namespaces) = mpsc::unbounded_channel();
        let secrets = Self {
            known: RwLock::default(),
            deleted: Mutex::default(),
            changing: Mutex::default(),
            changed,
            is_ready: watch::Sender::new(false),
            certificates,
        };
        (secrets, namespaces)
    }

    /// The identities of a namespace; `None` when it has no Secret.
    pub(crate) fn of(&self, namespace: &str) -> Option<Result<Identities, UnusableSecret>> {
        self.read().get(namespace).map(|known| known.identities.clone())
    }

    /// The same for those that use them; `None` too while they are being changed. The namespace is announced when that is
    /// over.
    pub(crate) fn settled(&self, namespace: &str) -> Option<Result<Identities, UnusableSecret>> {
        let is_changing = self.changing().contains(namespace);
        self.of(namespace).filter(|_| !is_changing)
    }

    /// Begins a change: those that use the identities wait until it is over.
    pub(crate) fn begin<'a>(&'a self, namespace: &'a str) -> Changing<'a> {
        self.changing().insert(namespace.to_owned());
        let secrets = self;
        Changing { secrets, namespace }
    }

    /// True once all Secrets are known.
    pub(crate) fn ready(&self) -> watch::Receiver<bool> {
        self.is_ready.subscribe()
    }

    /// What the Secret of a namespace should hold instead, if it is missing, incomplete or to be rotated;
    /// and whether a rotation may be.
    ///
    /// If it was deleted, pods with the old identity keep their rights, provided that the namespace is known to be
    /// the same one: another owner may use its name now.
    pub(crate) fn wanted(&self, namespace: &str, may_rotate: bool, is_same: bool) -> Option<Identities> {
        match self.of(namespace) {
            None => Some(match self.deleted().get(namespace) {
                Some(before) if is_same => before.rotated(namespace),
                _ => Identities::first(namespace),
            }),
            Some(Ok(identities)) if identities.is_rotation_asked && may_rotate => {
                Some(identities.rotated(namespace))
            }
            Some(Ok(identities)) if !identities.has_certificates => Some(Identities {
                has_certificates: true,
                ..identities
            }),
            Some(_) => None,
        }
    }

    /// Follows the API server; to be run as a task. Ends with its watch: never.
    pub(crate) async fn follow(&self, client: Client) {
        let api: Api<SecretPart> = Api::all(client);
        let config = watcher::Config::default()
            .fields(&format!("metadata.name={NAME}"))
            .page_size(PAGE);
        let mut events = watcher(api, config).default_backoff().boxed();
        let mut first = HashMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => first = HashMap::new(),
                Ok(Event::InitApply(secret)) => {
                    let secret = Secret::from(secret);
                    first.insert(secret.namespace().unwrap_or_default(), self.seen(&secret));
                }
                Ok(Event::InitDone) => {
                    let new = std::mem::take(&mut first);
                    let old = std::mem::replace(&mut *self.write(), new.clone());
                    for (namespace, known) in &old {
                        if !new.contains_key(namespace) {
                            self.remember(namespace, known.identities.clone());
                        }
                    }
                    let of = |all: &HashMap<String, Known>, name: &String| {
                        all.get(name).map(|known| known.identities.clone())
                    };
                    let namespaces = new.keys().chain(old.keys());
                    for namespace in namespaces.filter(|name| of(&new, name) != of(&old, name)) {
                        self.announce(namespace);
                    }
                    self.is_ready.send_replace(true);
                }
                Ok(Event::Apply(secret)) => self.put(&secret.into()),
                Ok(Event::Delete(secret)) => {
                    let namespace = secret.namespace().unwrap_or_default();
                    self.forget(&namespace);
                }
                Err(error) => tracing::warn!(%error, "Failed to watch Secrets; trying again"),
            }
        }
    }

    /// Takes in a Secret as it is.
    pub(crate) fn put(&self, secret: &Secret) {
        let namespace = secret.namespace().unwrap_or_default();
        let seen = self.seen(secret);
        self.deleted().remove(&namespace);
        let old = self.write().insert(namespace.clone(), seen.clone());
        if old.map(|old| old.identities) != Some(seen.identities) {
            self.announce(&namespace);
        }
    }

    fn seen(&self, secret: &Secret) -> Known {
        Known {
            identities: Identities::of(secret, &self.certificates),
            version: secret.resource_version(),
        }
    }

    fn forget(&self, namespace: &str) {
        if let Some(known) = self.write().remove(namespace) {
            self.remember(namespace, known.identities);
        }
        self.announce(namespace);
    }

    fn remember(&self, namespace: &str, identities: Result<Identities, UnusableSecret>) {
        if let Ok(identities) = identities {
            self.deleted().insert(namespace.to_owned(), identities);
        }
    }

    fn announce(&self, namespace: &str) {
        if !self.changing().contains(namespace) {
            // The receiver is gone only during the shutdown.
            let _ = self.changed.send(namespace.to_owned());
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn deleted(&self) -> MutexGuard<'_, HashMap<String, Identities>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, HashSet<String>> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Known>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_crds::keys::ROTATE;

    use super::*;
    use crate::kubernetes::objects::CA;
    use k8s_openapi::ByteString;

    fn written(secrets: &Secrets, identities: &Identities) -> Secret {
        let mut secret = secrets.secret(identities);
        secret.metadata.namespace = Some("shop".into());
        secret
    }

    fn no_certificates() -> Certificates {
        Certificates::new()
    }

    #[test]
    fn after_a_rotation_the_identity_before_still_counts_and_the_one_before_that_does_not() {
        let (secrets, _) = Secrets::new(no_certificates());
        let first = Identities::first("shop");
        let second = first.rotated("shop");
        let third = second.rotated("shop");
        for identities in [&first, &second, &third] {
            let read = Identities::of(&written(&secrets, identities), &no_certificates());
            assert_eq!(read.as_ref(), Ok(identities));
        }
        assert_eq!(second.all[1], first.all[0]);
        assert!(!third.all.contains(&first.all[0]));
    }

    #[test]
    fn a_deleted_secret_comes_back_with_the_old_identity_beside_a_new_one_in_the_same_namespace_only() {
        let (secrets, _) = Secrets::new(no_certificates());
        let first = Identities::first("shop");
        secrets.put(&written(&secrets, &first));
        secrets.forget("shop");
        let again = secrets.wanted("shop", true, true).unwrap();
        assert_eq!(again.all[1], first.all[0]);
        assert_ne!(again.all[0], first.all[0]);
        let of_another = secrets.wanted("shop", true, false).unwrap();
        assert!(of_another.all.len() == 1 && of_another.all[0] != first.all[0]);
        // Once the Secret is created, the previous identity is in it, or forgotten.
        secrets.put(&written(&secrets, &of_another));
        secrets.forget("shop");
        let again = secrets.wanted("shop", true, true).unwrap();
        assert!(!again.all.contains(&first.all[0]));
    }

    #[test]
    fn a_rotation_that_has_to_wait_stays_asked_for_and_certificates_come_meanwhile() {
        let certificates = Certificates::from([(CA.to_owned(), ByteString(b"PEM".to_vec()))]);
        let (secrets, _) = Secrets::new(certificates);
        let (before, _) = Secrets::new(no_certificates());
        let mut secret = written(&before, &Identities::first("shop"));
        secret
            .annotations_mut()
            .insert(ROTATE.to_owned(), "now".to_owned());
        secrets.put(&secret);
        let known = secrets.of("shop").unwrap().unwrap();
        let wanted = secrets.wanted("shop", false, true).unwrap();
        assert_eq!(wanted.all, known.all);
        assert!(wanted.is_rotation_asked);
        secrets.put(&written(&secrets, &wanted));
        assert_eq!(secrets.wanted("shop", true, true), None, "it has all it needs");
    }

    #[test]
    fn those_that_use_an_identity_wait_while_it_is_missing_or_changed_and_hear_once_when_that_is_over() {
        let (secrets, mut changed) = Secrets::new(no_certificates());
        let mut announced = || std::iter::from_fn(|| changed.try_recv().ok()).count();
        assert_eq!(secrets.settled("shop"), None);
        let first = Identities::first("shop");
        let changing = secrets.begin("shop");
        secrets.put(&written(&secrets, &first));
        assert_eq!((secrets.settled("shop"), announced()), (None, 0));
        drop(changing);
        assert_eq!((secrets.settled("shop"), announced()), (Some(Ok(first)), 1));
        // A change that fails wakes those that have waited for it.
        drop(secrets.begin("shop"));
        assert!(secrets.settled("shop").is_some());
        assert_eq!(announced(), 1);
        secrets.forget("shop");
        assert_eq!((secrets.settled("shop"), announced()), (None, 1));
    }

    #[test]
    fn an_identity_of_another_namespace_is_not_accepted() {
        let (secrets, _) = Secrets::new(no_certificates());
        let foreign = written(&secrets, &Identities::first("bank"));
        let refused = |secret: &Secret| {
            Identities::of(secret, &no_certificates())
                .unwrap_err()
                .to_string()
        };
        let error = refused(&foreign);
        assert!(error.contains("must hold identities of ns-shop"), "{error}");
        let error = refused(&Secret::default());
        assert!(
            error.contains("auth of Secret lockkeeper-zookeeper is missing"),
            "{error}"
        );
    }
}
