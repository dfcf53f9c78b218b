//! The command of an image whose pod does not state one: asked of the image's registry.

use std::time::Duration;

use aws_lc_rs::digest;
use futures_util::FutureExt;
use kube::{Api, Client};
use lockkeeper_daemon::places::Source;
use oci_spec::distribution::Reference;
use serde_json::Value;

mod challenge;
mod configuration;
mod credentials;
mod exchange;
mod options;
mod problem;
mod registry;
mod share;
mod url;
mod visit;

pub use credentials::{Credential, Credentials};
pub(crate) use exchange::InvalidAuthorities;
pub use options::RegistryOptions;
pub use registry::Registry;
pub use share::Shares;
use share::WAITING;

use crate::admission::asker::Asker;
use crate::admission::cache::{Cache, Weigh};
use crate::admission::inject::{ImageConfig, ImageQuestion, ImageUnknown};
use crate::kubernetes::names::is_subdomain;
use crate::kubernetes::objects::SecretPart;

/// What registries say, for the crate `fuzz`.
#[cfg(feature = "fuzzing")]
pub(crate) mod parsers {
    pub(crate) use super::challenge::Challenge;
    pub use super::configuration::Document;
    pub(crate) use super::configuration::{is_digest, read as configuration, sha256};
    pub(crate) use super::exchange::{Answer, read_answer};
    pub(crate) use super::url::Url;
}

/// A tag may move. The kubelet of a pod resolves it some moments later anyway.
const TAG_LIFE: Duration = Duration::from_secs(60);
/// Pods come in bursts, and a Secret that was just mended should count soon.
const SECRET_LIFE: Duration = Duration::from_secs(10);
/// What a digest stands for does not change; whether its registry still lets us read it may.
const DIGEST_LIFE: Duration = Duration::from_secs(3600);

/// Longest name of an image that is looked up, in bytes: a repository has 255 at most with its registry
/// (`distribution/reference`), a tag 128, and a digest 71.
const LONGEST_IMAGE: usize = 512;
/// Longest name of a pull secret (DNS subdomain, RFC 1123), and of an architecture (value of a label), in bytes.
const LONGEST_NAME: usize = 253;

/// What is kept of one kind, in bytes. A command may have 128 KiB (of 16 platforms it is the same one); a pull
/// secret 1 MiB; names and digests some hundred bytes.
const KEPT_CONFIGS: usize = 8 << 20;
const KEPT_SECRETS: usize = 4 << 20;
const KEPT_NAMES: usize = 1 << 20;

/// Looks up images and remembers them.
#[derive(Debug)]
pub struct Images {
    registry: Registry,
    shares: Shares,
    /// By namespace and name.
    secrets: Cache<(String, String), Credentials>,
    references: Cache<String, Reference>,
    digests: Cache<Question, String, Option<Source>>,
    configs: Cache<Question, ImageConfig, Option<Source>>,
}

/// A reference, the platform, and the caller: no caller learns of an image from the rights of another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    reference: String,
    architecture: Option<String>,
    asker: Vec<u8>,
    /// Equal questions from one namespace and source share one look-up, whose duration depends on the other questions
    /// of both.
    namespace: String,
}

impl Images {
    /// With nothing looked up yet.
    ///
    /// # Errors
    /// As [`Registry::new`].
    pub fn new(options: RegistryOptions) -> Result<Self, InvalidAuthorities> {
        Ok(Self {
            registry: Registry::new(options)?,
            shares: Shares::default(),
            secrets: Cache::new(SECRET_LIFE, KEPT_SECRETS),
            references: Cache::new(DIGEST_LIFE, KEPT_NAMES),
            digests: Cache::new(TAG_LIFE, KEPT_NAMES),
            configs: Cache::new(DIGEST_LIFE, KEPT_CONFIGS),
        })
    }

    /// What the image of a pod says about its first process, read with the pull secrets of the pod where that
    /// is allowed, else with none.
    ///
    /// These include those of its service account: the API server copies them into a pod that has none
    /// before it asks webhooks (admission plugin `ServiceAccount`).
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) async fn config(
        &self,
        client: &Client,
        asker: &Asker,
        pod: &Value,
        question: &ImageQuestion,
        may_use_secrets: bool,
    ) -> Result<ImageConfig, ImageUnknown> {
        within_bounds(question)?;
        let limit = self.registry.options().timeout;
        let asked = async {
            let reference = self.reference(&question.image).await?;
            let credentials = if may_use_secrets {
                self.pull_secrets(client, asker.namespace(), pod)
                    .await?
                    .matching(&reference)
            } else {
                Vec::new()
            };
            self.resolve(&reference, question.architecture.as_deref(), &credentials, asker)
                .await
        };
        let mut asked = std::pin::pin!(asked);
        // A kept answer needs no registry. Unconstrained: when a task has used up its budget, tokio makes it wait at
        // each semaphore, which would look like a registry that does not answer.
        if let Some(answer) = tokio::task::unconstrained(asked.as_mut()).now_or_never() {
            return answer;
        }
        let Some(_waiting) = self.shares.wait(asker) else {
            return Err(ImageUnknown::Passing(format!(
                "{WAITING} reviews of pods of this namespace wait for registries already"
            )));
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(ImageUnknown::Passing(format!(
                "the registry of {} did not answer within {limit:?}",
                question.image
            ))),
        }
    }

    /// What the name of an image means. Kept, since the expression that takes a name apart is a large one.
    async fn reference(&self, image: &str) -> Result<Reference, ImageUnknown> {
        let parse = async || {
            image.parse().map_err(|error| {
                ImageUnknown::Lasting(format!("`{image}` is no reference of an image: {error}"))
            })
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
        asker: &Asker,
    ) -> Result<ImageConfig, ImageUnknown> {
        let share = self.shares.of(asker);
        let question = |reference: &Reference| Question {
            reference: reference.whole(),
            architecture: architecture.map(str::to_owned),
            asker: fingerprint(credentials),
            namespace: asker.namespace().to_owned(),
        };
        let by_digest = match reference.digest() {
            Some(_) => reference.clone(),
            None => {
                let ask = || self.registry.digest(reference, credentials, &share);
                let asked = self.digests.get_for(asker.source(), question(reference), ask);
                let digest = asked.await?;
                reference.clone_with_digest(digest)
            }
        };
        let ask = || {
            self.registry
                .config(&by_digest, architecture, credentials, &share)
        };
        self.configs
            .get_for(asker.source(), question(&by_digest), ask)
            .await
    }

    async fn pull_secrets(
        &self,
        client: &Client,
        namespace: &str,
        pod: &Value,
    ) -> Result<Credentials, ImageUnknown> {
        let mut credentials = Credentials::default();
        for reference in pod["spec"]["imagePullSecrets"].as_array().into_iter().flatten() {
            // No Secret can have such a name, and a kubelet goes on without it.
            let Some(name) = reference["name"].as_str().filter(|name| is_subdomain(name)) else {
                continue;
            };
            let question = (namespace.to_owned(), name.to_owned());
            let ask = || read(client, namespace, name);
            match self.secrets.get(question, ask).await {
                Ok(more) => credentials.append(more),
                // A kubelet goes on without it, too.
                Err(Unread::Missing) => {}
                Err(Unread::Failed(error)) => {
                    let problem = format!("pull secret `{name}` cannot be read: {error}");
                    // Whether the operator has this right is a setting of the chart.
                    let is_forbidden = matches!(&error, kube::Error::Api(status) if status.is_forbidden());
                    return Err(match is_forbidden {
                        true => ImageUnknown::Lasting(problem),
                        false => ImageUnknown::Passing(problem),
                    });
                }
            }
        }
        Ok(credentials)
    }
}

/// Checks that such an image can exist. What a pod says is neither remembered nor repeated before this check.
fn within_bounds(question: &ImageQuestion) -> Result<(), ImageUnknown> {
    let too_long = |what: &str, length: usize, most: usize| {
        Err(ImageUnknown::Lasting(format!(
            "the name of the {what} has {length} bytes: write one of at most {most}"
        )))
    };
    if question.image.len() > LONGEST_IMAGE {
        return too_long("image", question.image.len(), LONGEST_IMAGE);
    }
    match &question.architecture {
        Some(name) if name.len() > LONGEST_NAME => too_long("architecture", name.len(), LONGEST_NAME),
        _ => Ok(()),
    }
}

impl Weigh for Question {
    fn weight(&self) -> usize {
        let architecture = self.architecture.as_ref().map_or(0, String::len);
        self.reference.len() + architecture + self.asker.len() + self.namespace.len()
    }
}

impl Weigh for Reference {
    fn weight(&self) -> usize {
        self.whole().len()
    }
}

impl Weigh for Credentials {
    fn weight(&self) -> usize {
        self.bytes()
    }
}

impl Weigh for ImageConfig {
    fn weight(&self) -> usize {
        let words = self.entrypoint.iter().chain(&self.cmd).chain([&self.user]);
        words.map(|word| word.len() + size_of::<String>()).sum()
    }
}

/// Why a pull secret gives no credentials.
enum Unread {
    Missing,
    Failed(kube::Error),
}

async fn read(client: &Client, namespace: &str, name: &str) -> Result<Credentials, Unread> {
    let api = Api::<SecretPart>::namespaced(client.clone(), namespace);
    let secret = api.get_opt(name).await.map_err(Unread::Failed)?;
    Ok(Credentials::of(&secret.ok_or(Unread::Missing)?.into()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_with_many_reviews_at_a_silent_registry_is_refused_more_at_once_and_told_what_is_known()
     {
        // The kernel takes the connections, and no program answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let host = silent.local_addr().unwrap().to_string();
        let images = Images::new(RegistryOptions {
            timeout: Duration::from_secs(3),
            plain_http: vec![host.clone()],
            authorities: None,
            networks: vec!["127.0.0.1".parse().unwrap()],
            redirects: Vec::new(),
        })
        .unwrap();
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let review = async |namespace: &str, image: String| {
            let question = ImageQuestion {
                image,
                architecture: None,
            };
            let asker = Asker::new(namespace, None);
            images
                .config(&client, &asker, &Value::Null, &question, true)
                .await
        };
        let known: Reference = format!("{host}/known@sha256:{}", "0".repeat(64)).parse().unwrap();
        let question = Question {
            reference: known.whole(),
            architecture: None,
            asker: fingerprint(&[]),
            namespace: "hostile".to_owned(),
        };
        let answer = ImageConfig::default();
        let answered = images
            .configs
            .get_for(None, question, async || Ok::<_, ImageUnknown>(answer.clone()));
        answered.await.unwrap();

        let mut waiting = Vec::new();
        for at in 0..WAITING {
            let mut one = Box::pin(review("hostile", format!("{host}/app:{at}")));
            assert!(one.as_mut().now_or_never().is_none());
            waiting.push(one);
        }
        let more = review("hostile", format!("{host}/app:more")).now_or_never();
        let Some(Err(ImageUnknown::Passing(sentence))) = more else {
            panic!("{more:?}")
        };
        assert!(sentence.starts_with(&format!("{WAITING} reviews")), "{sentence}");
        assert_eq!(review("hostile", known.whole()).now_or_never(), Some(Ok(answer)));
        assert!(review("honest", format!("{host}/app:1")).now_or_never().is_none());
        waiting.pop();
        assert!(
            review("hostile", format!("{host}/app:more"))
                .now_or_never()
                .is_none()
        );
    }

    #[test]
    fn a_name_that_no_image_has_is_refused_before_it_is_remembered_and_is_not_repeated() {
        let question = |image: &str, architecture: Option<String>| ImageQuestion {
            image: image.to_owned(),
            architecture,
        };
        assert_eq!(
            within_bounds(&question("registry.example/app:1", Some("amd64".into()))),
            Ok(())
        );
        let long = "registry.example/".to_owned() + &"a".repeat(2 << 20);
        for (question, what) in [
            (question(&long, None), "the name of the image"),
            (
                question("app", Some(long.clone())),
                "the name of the architecture",
            ),
        ] {
            let Err(ImageUnknown::Lasting(sentence)) = within_bounds(&question) else {
                panic!("{what}")
            };
            assert!(sentence.starts_with(what) && sentence.len() < 200, "{sentence}");
        }
    }
}
