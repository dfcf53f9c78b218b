//! The operator's own certificate: in a Secret, which the leader makes and rotates and all replicas serve.
//!
//! The order of a rotation: first the API server trusts the new authority beside the old one, then the
//! Secret changes. So there is no moment at which a replica shows what is not trusted.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use super::authority::{Issued, issue};
use super::{CertificateError, Served};

/// How often replicas look at the Secret, and the leader at the configuration, which somebody may have
/// installed anew without its authorities.
const PERIOD: Duration = Duration::from_secs(10);
/// Until the first certificate is there, everybody who makes a guarded pod is waiting for us.
const PERIOD_WITHOUT: Duration = Duration::from_secs(1);

/// Time for API servers to learn whom to trust: they learn it by a watch, and nobody says when.
const SPREAD: Duration = Duration::from_secs(5);

/// Owner of `caBundle` in the webhook's configuration.
const MANAGER: &str = "lockkeeper-certificates";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
/// Annotation: seconds since 1970.
const MADE_AT: &str = "lockkeeper.io/made-at";

/// Where the certificate is kept and who has to trust it.
#[derive(Clone, Debug)]
pub struct Place {
    /// Namespace of the operator.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of the Service, for which the certificate is.
    pub service: String,
    /// Name of the `MutatingWebhookConfiguration`.
    pub configuration: String,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to {0}")]
    Api(&'static str, #[source] kube::Error),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Serves the certificate of the Secret, and makes and rotates it while `leading`. Never ends.
pub async fn follow(
    client: Client,
    place: Place,
    served: Served,
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
        let is_leading = *leading.borrow_and_update();
        if let Err(error) = keeper.round(is_leading).await {
            tracing::warn!(%error, cause = ?std::error::Error::source(&error), "Failed to look after the certificate");
        }
        let is_there = keeper.served.is_there();
        ready.send_replace(is_there);
        let period = if is_there { PERIOD } else { PERIOD_WITHOUT };
        // The end of the sender is the end of the leadership: look again later, as a follower.
        if let Ok(Err(_)) = tokio::time::timeout(period, leading.changed()).await {
            tokio::time::sleep(period).await;
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
    async fn round(&mut self, leads: bool) -> Result<(), Error> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.place.namespace);
        let name = self.place.secret.clone();
        let secret = secrets
            .get_opt(&name)
            .await
            .map_err(|error| Error::Api("read the Secret", error))?;
        let mut current = secret.as_ref().and_then(read);
        if leads {
            let now = now();
            if current.as_ref().is_none_or(|current| now >= current.renew_at()) {
                let previous = current.as_ref().map(|current| current.authorities.as_str());
                let next = issue(&self.names(), previous, now)?;
                self.trust(&next.authorities).await?;
                if current.is_some() {
                    tokio::time::sleep(SPREAD).await;
                }
                let written = write(&next, &self.place, secret);
                let put = if written.metadata.resource_version.is_some() {
                    secrets.replace(&name, &PostParams::default(), &written).await
                } else {
                    secrets.create(&PostParams::default(), &written).await
                };
                put.map_err(|error| Error::Api("write the Secret", error))?;
                tracing::info!(secret = name, "Made a new certificate");
                current = Some(next);
            } else if let Some(current) = &current {
                // Somebody may have installed the configuration anew.
                self.trust(&current.authorities).await?;
            }
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

    /// Puts the authorities into every webhook of the configuration, and nothing else.
    async fn trust(&self, authorities: &str) -> Result<(), Error> {
        let api = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let name = &self.place.configuration;
        let present = api
            .get(name)
            .await
            .map_err(|error| Error::Api("read the webhook configuration", error))?;
        let bundle = ByteString(authorities.as_bytes().to_vec());
        let webhooks = present.webhooks.unwrap_or_default();
        if webhooks
            .iter()
            .all(|webhook| webhook.client_config.ca_bundle.as_ref() == Some(&bundle))
        {
            return Ok(());
        }
        let webhooks: Vec<_> = webhooks
            .iter()
            .map(|webhook| json!({ "name": webhook.name, "clientConfig": { "caBundle": bundle } }))
            .collect();
        let patch = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": name },
            "webhooks": webhooks,
        });
        let params = PatchParams::apply(MANAGER).force();
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
        made_at: secret.metadata.annotations.as_ref()?.get(MADE_AT)?.parse().ok()?,
    })
}

/// With the version of what it replaces, so that of two leaders one fails.
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
        type_: Some("kubernetes.io/tls".to_owned()),
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
