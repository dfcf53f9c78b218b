//! The identity of each namespace, kept in a Secret there: made when a lock needs it, made again when
//! somebody deletes it, rotated when somebody asks.
//!
//! The Secret holds the identity in use and the one before, and a keeper shows both to the servers. So pods
//! of two neighbouring generations can read each other's contenders, and the one before counts until the
//! next rotation, which waits for those who know neither ([`crate::rotation`]). To delete the Secret is to
//! rotate without that wait, as long as this process has seen what was in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures_util::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::identity::Identity;
use crate::parts::{PAGE, SecretPart};

/// Name of the Secret, in every namespace that has locks.
pub const NAME: &str = "lockkeeper-zookeeper";

/// Its type: what the chart's policy holds the operator to, besides the name.
pub const TYPE: &str = "Opaque";

/// Key with the identity in use, and in a second line the one before the last rotation: as the sidecar's
/// `--auth-file` reads it.
pub const AUTH: &str = "auth";

/// Keys with certificates, where the ensemble speaks TLS, as in a lock's own `tlsSecret`.
pub const CA: &str = "ca.crt";
/// See [`CA`].
pub const CERTIFICATE: &str = "tls.crt";
/// See [`CA`].
pub const KEY: &str = "tls.key";

/// Annotation on the Secret by which a user asks for a rotation, whatever its value.
pub const ROTATE: &str = "lockkeeper.io/rotate";

/// The identities that a namespace's locks are open to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// The one in use, and the one before.
    pub all: Vec<Identity>,
    /// Whether somebody asks for a new one.
    pub is_rotation_asked: bool,
    /// Whether the certificates are there that pods need.
    pub has_certificates: bool,
}

/// What pods need beside an identity: the keys of the Secret with their content.
pub type Certificates = BTreeMap<String, ByteString>;

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
    /// What was in those that somebody has deleted, until they are made anew.
    deleted: Mutex<HashMap<String, Identities>>,
    changed: mpsc::UnboundedSender<String>,
    is_ready: watch::Sender<bool>,
    certificates: Certificates,
}

// === impl Identities ===

impl Identities {
    /// A first one.
    fn first(namespace: &str) -> Self {
        Self {
            all: vec![Identity::generate(namespace)],
            is_rotation_asked: false,
            has_certificates: true,
        }
    }

    /// Reads a Secret, which should have these certificates.
    ///
    /// # Errors
    /// When the identities are missing or something else.
    pub fn of(secret: &Secret, certificates: &Certificates) -> Result<Self, UnusableSecret> {
        let namespace = secret.namespace().unwrap_or_default();
        let unusable = |problem: String| UnusableSecret { key: AUTH, problem };
        let data = secret.data.as_ref();
        let value = |key: &str| data.and_then(|data| data.get(key));
        let auth = value(AUTH).ok_or_else(|| unusable("is missing".into()))?;
        let text = std::str::from_utf8(&auth.0).map_err(|_| unusable("is not text".into()))?;
        let all = Identity::parse_lines(text).map_err(|error| unusable(error.to_string()))?;
        if !all.iter().all(|identity| identity.is_of(&namespace)) {
            return Err(unusable(format!("must hold identities of ns-{namespace}")));
        }
        Ok(Self {
            all,
            is_rotation_asked: secret.annotations().contains_key(ROTATE),
            has_certificates: certificates
                .iter()
                .all(|(key, content)| value(key) == Some(content)),
        })
    }

    /// After a rotation: a new one, and the one that was in use.
    fn rotated(&self, namespace: &str) -> Self {
        let mut all = Self::first(namespace).all;
        all.push(self.all[0].clone());
        Self {
            all,
            ..Self::first(namespace)
        }
    }

    fn data(&self, certificates: &Certificates) -> BTreeMap<String, ByteString> {
        let lines: Vec<_> = self.all.iter().map(Identity::to_line).collect();
        let auth = (AUTH.to_owned(), ByteString(lines.join("\n").into_bytes()));
        certificates.clone().into_iter().chain([auth]).collect()
    }
}

// === impl Secrets ===

impl Secrets {
    /// Knows nothing yet. All Secrets get these certificates. The receiver gets the namespaces whose Secret
    /// changed.
    pub fn new(certificates: Certificates) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (changed, namespaces) = mpsc::unbounded_channel();
        let secrets = Self {
            known: RwLock::default(),
            deleted: Mutex::default(),
            changed,
            is_ready: watch::Sender::new(false),
            certificates,
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

    /// What the Secret of a namespace should hold instead, if it is missing, incomplete or to be rotated;
    /// and whether a rotation may be.
    ///
    /// Where it was deleted, those who have the old identity keep their rights; but only when the namespace
    /// is known to be the same one: its name may have been given to somebody else.
    pub fn wanted(&self, namespace: &str, may_rotate: bool, is_same: bool) -> Option<Identities> {
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

    /// Whether the API server would let a Secret be made, asked without making one: not in a namespace
    /// that is being deleted. A rotation changes one that is there.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn would_be_written(
        &self,
        client: &Client,
        namespace: &str,
        wanted: &Identities,
    ) -> Result<(), kube::Error> {
        if self.of(namespace).is_some() {
            return Ok(());
        }
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let asked = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match api.create(&asked, &self.secret(wanted)).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Writes what [`Secrets::wanted`] said. A Secret that another replica has made in between is left
    /// alone.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn write_secret(
        &self,
        client: &Client,
        namespace: &str,
        wanted: &Identities,
    ) -> Result<(), kube::Error> {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let parts: Api<SecretPart> = Api::namespaced(client.clone(), namespace);
        let secret = if self.of(namespace).is_none() {
            match api.create(&PostParams::default(), &self.secret(wanted)).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => parts.get(NAME).await?.into(),
                created => created?,
            }
        } else {
            let asked = wanted.is_rotation_asked.then_some("");
            let patch = json!({
                "metadata": {"annotations": {ROTATE: asked}},
                "data": wanted.data(&self.certificates),
            });
            let patch = Patch::Merge(patch);
            parts.patch(NAME, &PatchParams::default(), &patch).await?.into()
        };
        self.put(&secret);
        Ok(())
    }

    /// Follows the API server; to be run as a task. Ends with its watch: never.
    pub async fn follow(&self, client: Client) {
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
                    first.insert(
                        secret.namespace().unwrap_or_default(),
                        Identities::of(&secret, &self.certificates),
                    );
                }
                Ok(Event::InitDone) => {
                    let new = std::mem::take(&mut first);
                    let old = std::mem::replace(&mut *self.write(), new.clone());
                    for (namespace, identities) in &old {
                        if !new.contains_key(namespace) {
                            self.remember(namespace, identities.clone());
                        }
                    }
                    let namespaces = new.keys().chain(old.keys());
                    for namespace in namespaces.filter(|name| new.get(*name) != old.get(*name)) {
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

    fn secret(&self, identities: &Identities) -> Secret {
        Secret {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                labels: Some([("app.kubernetes.io/managed-by".to_owned(), "lockkeeper".to_owned())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            data: Some(identities.data(&self.certificates)),
            ..Secret::default()
        }
    }

    fn put(&self, secret: &Secret) {
        let namespace = secret.namespace().unwrap_or_default();
        let identities = Identities::of(secret, &self.certificates);
        self.deleted().remove(&namespace);
        let old = self.write().insert(namespace.clone(), identities.clone());
        if old != Some(identities) {
            self.announce(&namespace);
        }
    }

    fn forget(&self, namespace: &str) {
        if let Some(identities) = self.write().remove(namespace) {
            self.remember(namespace, identities);
        }
        self.announce(namespace);
    }

    fn remember(&self, namespace: &str, identities: Result<Identities, UnusableSecret>) {
        if let Ok(identities) = identities {
            self.deleted().insert(namespace.to_owned(), identities);
        }
    }

    fn announce(&self, namespace: &str) {
        // Nobody listens during the shutdown only.
        let _ = self.changed.send(namespace.to_owned());
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Result<Identities, UnusableSecret>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn deleted(&self) -> MutexGuard<'_, HashMap<String, Identities>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Result<Identities, UnusableSecret>>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Once it is made, what was before is in it, or nowhere.
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
