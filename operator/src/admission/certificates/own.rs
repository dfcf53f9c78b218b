//! The operator's own certificate, in a Secret. All replicas serve it, and the leader rotates it. Any replica creates
//! it if it is missing: the leader may be a replica with another setting that waits for this one to be ready.
//!
//! So a replica that does not lead writes here too, without a lease: `Right` says what, and why that is safe.
//!
//! A rotation first makes the API server trust the new authority beside the old one, and then changes the Secret. So
//! replicas always serve a certificate that is trusted.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lockkeeper_crds::keys::MADE_AT;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tokio::sync::watch;

use super::authority::{Issued, issue, issue_beside};
use super::bundle::Bundle;
use super::validity::Window;
use super::{CertificateError, Served};
use crate::leadership::{Leadership, NotLeading, Term};

/// How often replicas read the Secret and the configuration. Another client may have installed the configuration
/// anew, without the authorities.
const PERIOD: Duration = Duration::from_secs(10);
/// Until the first certificate exists, the creation of each guarded pod waits for it.
const PERIOD_WITHOUT: Duration = Duration::from_secs(1);

/// Time for API servers to learn of a new authority: they learn it by a watch, and do not report it.
const SPREAD: Duration = Duration::from_secs(5);

/// Owner of `caBundle` in the webhook's configuration.
const MANAGER: &str = "lockkeeper-certificates";

/// Type of the Secret, which the chart's policy on the operator checks besides the name.
pub const TYPE: &str = "kubernetes.io/tls";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";

/// The objects that hold the certificate, and the configuration that has to trust it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Namespace of the operator.
    pub(crate) namespace: String,
    /// Name of the Secret.
    pub(crate) secret: String,
    /// Name of the Service, for which the certificate is.
    pub(crate) service: String,
    /// Name of the `MutatingWebhookConfiguration`.
    pub(crate) configuration: String,
}

/// By what right a replica writes.
#[derive(Clone, Copy, Debug)]
enum Right<'a> {
    /// It leads: it rotates the certificate, and removes authorities that nobody needs.
    Leader(Term<'a>),
    /// It does not lead: it only creates a certificate where there is none that can be used, and adds its authority. No
    /// lease is needed for that. Each write names the version that it replaces, or creates what must not be there. So if
    /// several replicas do it at once, the API server takes the first write, and the others read what it says.
    Anybody,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    #[error("failed to {0}")]
    Api(&'static str, #[source] kube::Error),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Serves the certificate of the Secret, makes it where there is none, and rotates it while this replica leads. `leading`
/// tells when that changes. Never ends.
pub(crate) async fn follow(
    client: Client,
    place: Place,
    served: Served,
    leadership: Leadership,
    mut leading: watch::Receiver<bool>,
    ready: watch::Sender<bool>,
) {
    let mut keeper = Keeper {
        client,
        place,
        served,
        last: None,
    };
    loop {
        leading.mark_unchanged();
        match keeper.round(Right::of(&leadership)).await {
            Ok(()) => {}
            Err(Error::NotLeading(error)) => {
                tracing::debug!(%error, "Another replica maintains the certificate")
            }
            Err(error) => {
                tracing::warn!(%error, cause = ?std::error::Error::source(&error), "Failed to maintain the certificate")
            }
        }
        let is_there = keeper.served.is_there();
        ready.send_replace(is_there);
        let period = if is_there { PERIOD } else { PERIOD_WITHOUT };
        // If the sender is gone, the leadership has ended: look again later, as a follower.
        if let Ok(Err(_)) = tokio::time::timeout(period, leading.changed()).await {
            tokio::time::sleep(period).await;
        }
    }
}

impl<'a> Right<'a> {
    fn of(leadership: &'a Leadership) -> Self {
        leadership.term().map_or(Self::Anybody, Self::Leader)
    }

    fn is_leaders(self) -> bool {
        matches!(self, Self::Leader(_))
    }

    /// To be called before each write.
    ///
    /// # Errors
    /// When the term of a leader is over.
    fn check(self) -> Result<(), NotLeading> {
        match self {
            Self::Leader(term) => term.check(),
            Self::Anybody => Ok(()),
        }
    }
}

struct Keeper {
    client: Client,
    place: Place,
    served: Served,
    last: Option<Issued>,
}

impl Keeper {
    async fn round(&mut self, right: Right<'_>) -> Result<(), Error> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.place.namespace);
        let name = self.place.secret.clone();
        let secret = secrets
            .get_opt(&name)
            .await
            .map_err(|error| Error::Api("read the Secret", error))?;
        let [service, _] = self.names();
        let mut current = secret
            .as_ref()
            .and_then(read)
            .filter(|current| current.is_sound(&service));
        let now = now();
        let bundle = self.bundle().await?;
        let is_wanted = |current: &Issued| right.is_leaders() && current.is_due(&service, now);
        if current.as_ref().is_none_or(is_wanted) {
            let next = match &current {
                Some(current) => issue(&self.names(), Some(&current.authorities), now)?,
                None => issue_beside(&self.names(), &bundle.foreign(), now)?,
            };
            self.trust(&bundle, &next, current.as_ref(), right).await?;
            if current.is_some() {
                tokio::time::sleep(SPREAD).await;
            }
            let written = write(&next, &self.place, secret);
            right.check()?;
            let put = if written.metadata.resource_version.is_some() {
                secrets.replace(&name, &PostParams::default(), &written).await
            } else {
                secrets.create(&PostParams::default(), &written).await
            };
            put.map_err(|error| Error::Api("write the Secret", error))?;
            tracing::info!(secret = name, "Made a new certificate");
            current = Some(next);
        } else if let Some(current) = &current {
            // The configuration may have been installed again.
            self.trust(&bundle, current, None, right).await?;
        }
        if let Some(current) = current
            && self.last.as_ref() != Some(&current)
        {
            self.served
                .set(current.certificate.as_bytes(), current.key.as_bytes())?;
            tracing::info!(secret = name, "Serving a new certificate");
            self.last = Some(current);
        }
        Ok(())
    }

    /// The authorities that the API server trusts now.
    async fn bundle(&self) -> Result<Bundle, Error> {
        let api = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let present = api
            .get(&self.place.configuration)
            .await
            .map_err(|error| Error::Api("read the webhook configuration", error))?;
        let webhooks = present.webhooks.unwrap_or_default().into_iter();
        let bundle_of = |bundle: Option<ByteString>| {
            String::from_utf8(bundle.map(|bundle| bundle.0).unwrap_or_default()).unwrap_or_default()
        };
        Ok(Bundle {
            version: present.metadata.resource_version,
            webhooks: webhooks
                .map(|webhook| (webhook.name, bundle_of(webhook.client_config.ca_bundle)))
                .collect(),
        })
    }

    /// Puts the authorities of a certificate into every webhook of the configuration, and changes nothing else there.
    /// Fails if the configuration has changed since `bundle` was read: another replica may do the same.
    async fn trust(
        &self,
        bundle: &Bundle,
        issued: &Issued,
        before: Option<&Issued>,
        right: Right<'_>,
    ) -> Result<(), Error> {
        let Some(wanted) = bundle.with(issued, before, right.is_leaders()) else {
            return Ok(());
        };
        let wanted = ByteString(wanted.into_bytes());
        let webhooks = bundle.webhooks.iter();
        let webhooks: Vec<_> = webhooks
            .map(|(name, _)| json!({ "name": name, "clientConfig": { "caBundle": wanted } }))
            .collect();
        let name = &self.place.configuration;
        let patch = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": name, "resourceVersion": bundle.version },
            "webhooks": webhooks,
        });
        let params = PatchParams::apply(MANAGER).force();
        let api = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        right.check()?;
        api.patch(name, &params, &Patch::Apply(patch))
            .await
            .map_err(|error| Error::Api("patch the webhook configuration", error))?;
        Ok(())
    }

    fn names(&self) -> [String; 2] {
        let Place {
            service, namespace, ..
        } = &self.place;
        [
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ]
    }
}

fn read(secret: &Secret) -> Option<Issued> {
    let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
    Some(Issued {
        authorities: text(AUTHORITIES)?,
        certificate: text(CERTIFICATE)?,
        key: text(KEY)?,
        made_at: made_at(secret)?,
    })
}

/// A Secret without the annotation was made by another program, such as cert-manager: its age is that of its
/// certificate.
fn made_at(secret: &Secret) -> Option<u64> {
    let annotations = secret.metadata.annotations.as_ref();
    let written = annotations.and_then(|annotations| annotations.get(MADE_AT)?.parse().ok());
    written.or_else(|| {
        let certificate = &secret.data.as_ref()?.get(CERTIFICATE)?.0;
        let certificate = CertificateDer::from_pem_slice(certificate).ok()?;
        Some(Window::of(&certificate)?.not_before)
    })
}

/// Carries the version that it replaces, so that one of two leaders fails.
fn write(issued: &Issued, place: &Place, present: Option<Secret>) -> Secret {
    let data = [
        (AUTHORITIES, &issued.authorities),
        (CERTIFICATE, &issued.certificate),
        (KEY, &issued.key),
    ];
    let present = present.map(|present| present.metadata).unwrap_or_default();
    let mut annotations = present.annotations.clone().unwrap_or_default();
    annotations.insert(MADE_AT.to_owned(), issued.made_at.to_string());
    Secret {
        metadata: ObjectMeta {
            name: Some(place.secret.clone()),
            annotations: Some(annotations),
            ..present
        },
        type_: Some(TYPE.to_owned()),
        data: Some(BTreeMap::from(data.map(|(key, text)| {
            (key.to_owned(), ByteString(text.as_bytes().to_vec()))
        }))),
        ..Secret::default()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "certificates are valid by the wall clock"
)]
fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
