//! Questions to a registry (OCI distribution specification).

use std::time::Duration;

use futures_util::future::try_join_all;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::config::{Architecture, Os};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::{ImageIndexEntry, OciImageManifest, OciManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use serde::Deserialize;

use super::credentials::Credential;
use crate::inject::ImageConfig;

/// Configurations of images have a few kilobytes.
const MAX_CONFIG: i64 = 4 << 20;
/// Most platforms that are asked for at once.
const MAX_PLATFORMS: usize = 16;
/// How much of a registry's own words a user gets to read.
const MAX_PROBLEM: usize = 160;

/// How registries are asked.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// For one image in all.
    pub timeout: Duration,
    /// Registries, HOST or HOST:PORT, that speak HTTP without TLS.
    pub plain_http: Vec<String>,
    /// Authorities (PEM) to trust beside those of the system.
    pub authorities: Option<Vec<u8>>,
}

/// Asks registries.
#[derive(Debug)]
pub struct Registry {
    options: RegistryOptions,
}

/// What of an image's configuration counts here (OCI image specification, `config.md`).
#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    config: Process,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Process {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    user: Option<String>,
}

impl Registry {
    /// With these options.
    pub fn new(options: RegistryOptions) -> Self {
        Self { options }
    }

    /// The options.
    pub fn options(&self) -> &RegistryOptions {
        &self.options
    }

    /// What a tag stands for now.
    ///
    /// # Errors
    /// When the registry does not say.
    pub async fn digest(&self, image: &Reference, credentials: &[Credential]) -> Result<String, String> {
        self.with_each(image, credentials, |client, auth| async move {
            client.fetch_manifest_digest(image, &auth).await
        })
        .await
    }

    /// What an image says about its first process. An image of many platforms must say the same for all
    /// of them, or for the one with `architecture` (`amd64`), if that is given: nobody knows yet where
    /// the pod will run.
    ///
    /// # Errors
    /// When the registry does not say, or platforms differ.
    pub async fn config(
        &self,
        image: &Reference,
        architecture: Option<&str>,
        credentials: &[Credential],
    ) -> Result<ImageConfig, String> {
        let fetch = |client: Client, auth: RegistryAuth| async move {
            let (client, auth) = (&client, &auth);
            let (manifest, _) = client.pull_manifest(image, auth).await?;
            let manifests = match manifest {
                OciManifest::Image(manifest) => vec![manifest],
                OciManifest::ImageIndex(index) => {
                    let chosen = index.manifests.iter().filter(|entry| runs(entry, architecture));
                    let references: Vec<_> = chosen
                        .take(MAX_PLATFORMS)
                        .map(|entry| image.clone_with_digest(entry.digest.clone()))
                        .collect();
                    let pulled = references.iter().map(|one| client.pull_image_manifest(one, auth));
                    try_join_all(pulled)
                        .await?
                        .into_iter()
                        .map(|(manifest, _)| manifest)
                        .collect()
                }
            };
            try_join_all(
                manifests
                    .iter()
                    .map(|manifest| configuration(client, image, manifest)),
            )
            .await
        };
        let mut configs = self.with_each(image, credentials, fetch).await?.into_iter();
        let Some(first) = configs.next() else {
            let platform = architecture.map_or_else(String::new, |name| format!("/{name}"));
            return Err(format!("{image} has no image for linux{platform}"));
        };
        if configs.any(|other| other != first) {
            return Err(format!(
                "{image} starts differently on its platforms; with nodeSelector kubernetes.io/arch one of them counts"
            ));
        }
        Ok(first)
    }

    /// Tries one credential after the other, and none at last, as a kubelet does.
    async fn with_each<T, F>(
        &self,
        image: &Reference,
        credentials: &[Credential],
        ask: impl Fn(Client, RegistryAuth) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<T, OciDistributionError>>,
    {
        let auths = credentials
            .iter()
            .map(|credential| RegistryAuth::Basic(credential.user.clone(), credential.password.clone()))
            .chain([RegistryAuth::Anonymous]);
        let mut problem = None;
        for auth in auths {
            // A client remembers tokens by registry: a new one for each, so that none is used for others.
            let client = self.client().map_err(|error| error.to_string())?;
            match ask(client, auth).await {
                Ok(answer) => return Ok(answer),
                // The first is the one that was meant.
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        let problem = problem.map_or_else(String::new, |error| error.to_string());
        let line: String = problem
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(MAX_PROBLEM)
            .collect();
        Err(format!(
            "the registry of {image} does not tell its command: {line}"
        ))
    }

    fn client(&self) -> Result<Client, OciDistributionError> {
        let authorities = self.options.authorities.iter().map(|pem| Certificate {
            encoding: CertificateEncoding::Pem,
            data: pem.clone(),
        });
        // Not `Client::new`, which panics where the system has no authorities.
        Client::try_from(ClientConfig {
            protocol: ClientProtocol::HttpsExcept(self.options.plain_http.clone()),
            extra_root_certificates: authorities.collect(),
            user_agent: concat!("lockkeeper-operator/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        })
    }
}

/// Attestations are entries too, of the platform `unknown/unknown`.
fn runs(entry: &ImageIndexEntry, architecture: Option<&str>) -> bool {
    entry.platform.as_ref().is_some_and(|platform| {
        platform.os == Os::Linux
            && match architecture {
                Some(wanted) => platform.architecture == Architecture::from(wanted),
                None => platform.architecture != Architecture::from("unknown"),
            }
    })
}

async fn configuration(
    client: &Client,
    image: &Reference,
    manifest: &OciImageManifest,
) -> Result<ImageConfig, OciDistributionError> {
    let problem = |text: String| OciDistributionError::GenericError(Some(text));
    if manifest.config.size > MAX_CONFIG {
        return Err(problem(format!(
            "its configuration has {} bytes",
            manifest.config.size
        )));
    }
    let mut json = Vec::new();
    client.pull_blob(image, &manifest.config, &mut json).await?;
    let configuration: Configuration = serde_json::from_slice(&json)
        .map_err(|error| problem(format!("its configuration is not that of an image: {error}")))?;
    let Process {
        entrypoint,
        cmd,
        user,
    } = configuration.config;
    Ok(ImageConfig {
        entrypoint: entrypoint.unwrap_or_default(),
        cmd: cmd.unwrap_or_default(),
        user: user.unwrap_or_default(),
    })
}
