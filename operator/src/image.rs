//! The command of an image whose pod does not state one: asked of the image's registry.

use std::time::Duration;

use aws_lc_rs::digest;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use oci_client::Reference;
use serde_json::Value;

mod credentials;
mod registry;

pub use credentials::{Credential, Credentials};
pub use registry::{Registry, RegistryOptions};

use crate::inject::{ImageConfig, ImageQuestion};
use crate::webhook::Cache;

/// A tag may move. The kubelet of a pod resolves it some moments later anyway.
const TAG_LIFE: Duration = Duration::from_secs(60);
/// Pods come in bursts, and a Secret that was just mended should count soon.
const SECRET_LIFE: Duration = Duration::from_secs(10);
/// What a digest stands for does not change; whether its registry still lets us read it may.
const DIGEST_LIFE: Duration = Duration::from_secs(3600);

/// Looks up images and remembers them.
#[derive(Debug)]
pub struct Images {
    registry: Registry,
    /// By namespace and name.
    secrets: Cache<(String, String), Credentials>,
    references: Cache<String, Reference>,
    digests: Cache<Question, String>,
    configs: Cache<Question, ImageConfig>,
}

/// A reference, the platform, and who asks: nobody learns of an image from the rights of somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    reference: String,
    architecture: Option<String>,
    asker: Vec<u8>,
}

impl Images {
    /// With nothing looked up yet.
    pub fn new(options: RegistryOptions) -> Self {
        Self {
            registry: Registry::new(options),
            secrets: Cache::new(SECRET_LIFE),
            references: Cache::new(DIGEST_LIFE),
            digests: Cache::new(TAG_LIFE),
            configs: Cache::new(DIGEST_LIFE),
        }
    }

    /// What the image of a pod says about its first process, read with the pull secrets of the pod.
    ///
    /// These include those of its service account: the API server copies them into a pod that has none
    /// before it asks webhooks (admission plugin `ServiceAccount`).
    ///
    /// # Errors
    /// Why it is not known, as part of a sentence.
    pub async fn config(
        &self,
        client: &Client,
        namespace: &str,
        pod: &Value,
        question: &ImageQuestion,
    ) -> Result<ImageConfig, String> {
        let limit = self.registry.options().timeout;
        let asked = async {
            let reference = self.reference(&question.image).await?;
            let credentials = self
                .pull_secrets(client, namespace, pod)
                .await?
                .matching(&reference);
            self.resolve(&reference, question.architecture.as_deref(), &credentials)
                .await
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!(
                "the registry of {} did not answer within {limit:?}",
                question.image
            )),
        }
    }

    /// What the name of an image means. Kept, since the expression that takes a name apart is a large one.
    async fn reference(&self, image: &str) -> Result<Reference, String> {
        let parse = async || {
            image
                .parse()
                .map_err(|error| format!("`{image}` is no reference of an image: {error}"))
        };
        self.references.get(image.to_owned(), parse).await
    }

    /// As [`Self::config`], with what may open the registry given.
    ///
    /// # Errors
    /// As [`Self::config`], without a bound of time.
    pub async fn resolve(
        &self,
        reference: &Reference,
        architecture: Option<&str>,
        credentials: &[Credential],
    ) -> Result<ImageConfig, String> {
        let question = |reference: &Reference| Question {
            reference: reference.whole(),
            architecture: architecture.map(str::to_owned),
            asker: fingerprint(credentials),
        };
        let by_digest = match reference.digest() {
            Some(_) => reference.clone(),
            None => {
                let ask = || self.registry.digest(reference, credentials);
                let digest = self.digests.get(question(reference), ask).await?;
                reference.clone_with_digest(digest)
            }
        };
        let ask = || self.registry.config(&by_digest, architecture, credentials);
        self.configs.get(question(&by_digest), ask).await
    }

    async fn pull_secrets(
        &self,
        client: &Client,
        namespace: &str,
        pod: &Value,
    ) -> Result<Credentials, String> {
        let mut credentials = Credentials::default();
        for reference in pod["spec"]["imagePullSecrets"].as_array().into_iter().flatten() {
            let Some(name) = reference["name"].as_str() else {
                continue;
            };
            let question = (namespace.to_owned(), name.to_owned());
            let ask = || read(client, namespace, name);
            match self.secrets.get(question, ask).await {
                Ok(more) => credentials.append(more),
                // A kubelet goes on without it, too.
                Err(Unread::Missing) => {}
                Err(Unread::Failed(error)) => {
                    return Err(format!("pull secret `{name}` cannot be read: {error}"));
                }
            }
        }
        Ok(credentials)
    }
}

/// Why a pull secret gives no credentials.
enum Unread {
    Missing,
    Failed(kube::Error),
}

async fn read(client: &Client, namespace: &str, name: &str) -> Result<Credentials, Unread> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = api.get_opt(name).await.map_err(Unread::Failed)?;
    Ok(Credentials::of(&secret.ok_or(Unread::Missing)?))
}

fn fingerprint(credentials: &[Credential]) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA256);
    for credential in credentials {
        for part in [&credential.user, &credential.password] {
            context.update(&part.len().to_le_bytes());
            context.update(part.as_bytes());
        }
    }
    context.finish().as_ref().to_vec()
}
