//! Questions to a registry (OCI distribution specification). A user of the cluster names the registry, so nothing
//! that it says is trusted: where to ask next, how long an answer is, or what to tell users.

use oci_spec::distribution::Reference;

use super::credentials::Credential;
use super::exchange::{Exchange, InvalidAuthorities};
use super::options::RegistryOptions;
use super::problem::Problems;
use super::share::Share;
use super::visit::Visit;
use crate::admission::inject::{ImageConfig, ImageUnknown};

#[derive(Debug)]
pub struct Registry {
    options: RegistryOptions,
    exchange: Exchange,
}

impl Registry {
    /// With these options.
    ///
    /// # Errors
    /// When the authorities cannot be used.
    pub fn new(options: RegistryOptions) -> Result<Self, InvalidAuthorities> {
        let exchange = Exchange::new(options.authorities.as_deref(), options.networks.clone())?;
        Ok(Self { options, exchange })
    }

    pub(crate) fn options(&self) -> &RegistryOptions {
        &self.options
    }

    /// What a tag stands for now.
    ///
    /// # Errors
    /// When the registry does not say.
    pub async fn digest(
        &self,
        image: &Reference,
        credentials: &[Credential],
        share: &Share,
    ) -> Result<String, ImageUnknown> {
        let mut problems = Problems::default();
        for visit in self.visits(image, credentials, share) {
            match visit.digest().await {
                Ok(digest) => return Ok(digest),
                Err(problem) => problems.add(problem),
            }
        }
        Err(problems.about(image))
    }

    /// What an image says about its first process. An image of many platforms must say the same for all
    /// of them, or for the one with `architecture` (`amd64`), if that is given: it is not known yet where
    /// the pod will run.
    ///
    /// # Errors
    /// When the registry does not say, or platforms differ.
    pub async fn config(
        &self,
        image: &Reference,
        architecture: Option<&str>,
        credentials: &[Credential],
        share: &Share,
    ) -> Result<ImageConfig, ImageUnknown> {
        let mut configs = self
            .configs(image, architecture, credentials, share)
            .await?
            .into_iter();
        let Some(first) = configs.next() else {
            let platform = architecture.map_or_else(String::new, |name| format!("/{name}"));
            return Err(ImageUnknown::Lasting(format!(
                "{image} has no image for linux{platform}"
            )));
        };
        if configs.any(|other| other != first) {
            return Err(ImageUnknown::Lasting(format!(
                "{image} starts differently on its platforms; with nodeSelector kubernetes.io/arch one of them counts"
            )));
        }
        Ok(first)
    }

    async fn configs(
        &self,
        image: &Reference,
        architecture: Option<&str>,
        credentials: &[Credential],
        share: &Share,
    ) -> Result<Vec<ImageConfig>, ImageUnknown> {
        let mut problems = Problems::default();
        for visit in self.visits(image, credentials, share) {
            match visit.configs(architecture).await {
                Ok(configs) => return Ok(configs),
                Err(problem) => problems.add(problem),
            }
        }
        Err(problems.about(image))
    }

    /// With one credential after the other, and none at last, as a kubelet does. Of what goes wrong the first
    /// counts: it is the one that was meant.
    fn visits<'a>(
        &'a self,
        image: &'a Reference,
        credentials: &'a [Credential],
        share: &'a Share,
    ) -> impl Iterator<Item = Visit<'a>> + Send {
        let home = self.options.home(image);
        let each = credentials.iter().map(Some).chain([None]);
        each.filter_map(move |credential| {
            Some(Visit {
                options: &self.options,
                exchange: &self.exchange,
                image,
                credential,
                share,
                home: home.clone()?,
                authorization: tokio::sync::OnceCell::new(),
            })
        })
    }
}
