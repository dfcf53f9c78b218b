//! Questions to a registry (OCI distribution specification). A user of the cluster names it, so nothing that
//! it says is trusted: not for where to ask next, not for how long an answer is, and not for what users read.

use std::collections::HashSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::try_join_all;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use oci_spec::distribution::Reference;
use serde::Deserialize;

use super::address::Network;
use super::challenge::Challenge;
use super::configuration::{self, Document, Unusable};
use super::credentials::Credential;
use super::exchange::{Answer, Exchange, InvalidAuthorities, NoAnswer};
use super::share::Share;
use super::url::Url;
use crate::inject::{ImageConfig, ImageUnknown};

/// Manifests, and configurations of images, have a few kilobytes. In bytes.
const MAX_BODY: usize = 1 << 20;
/// Tokens have a few kilobytes. In bytes.
const MAX_TOKEN: usize = 64 << 10;
/// Most platforms that are asked for at once.
const MAX_PLATFORMS: usize = 16;
/// Redirects that are followed, one after the other. Registries send one.
const MAX_REDIRECTS: usize = 3;

/// Manifests and indexes of images, OCI's and Docker's.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";
const DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Where Docker's own registry answers; its name is one of a web site.
const DOCKER: &str = "registry-1.docker.io";

/// How registries are asked.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// For one image in all.
    pub timeout: Duration,
    /// Registries, HOST or HOST:PORT, that speak HTTP without TLS.
    pub plain_http: Vec<String>,
    /// Authorities (PEM) to trust beside those of the system.
    pub authorities: Option<Vec<u8>>,
    /// Where registries may be although nothing else is asked there: loopback, link-local.
    pub networks: Vec<Network>,
    /// Hosts beside its own to which a registry may lead for a blob: `HOST`, or `*.DOMAIN`.
    pub redirects: Vec<String>,
}

/// Asks registries.
#[derive(Debug)]
pub struct Registry {
    options: RegistryOptions,
    exchange: Exchange,
}

/// Why a registry does not say.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    NoAnswer(#[from] NoAnswer),
    #[error("it answers with status {}", .0.as_u16())]
    Status(StatusCode),
    #[error("{0}")]
    Unusable(#[from] Unusable),
    #[error("it leads to another host or scheme, which --registry-redirects does not name")]
    Elsewhere,
    #[error("it leads from one place to the next")]
    Circle,
    #[error("it wants tokens from a place without TLS")]
    OpenRealm,
    #[error("it asks for credentials in a way that is not known")]
    Challenge,
    #[error("its token server answers with status {}", .0.as_u16())]
    NoToken(StatusCode),
    #[error("its token server: {0}")]
    NoTokenServer(NoAnswer),
    #[error("its token server gives no token")]
    Token,
    #[error("its name cannot be one of a server")]
    Name,
}

/// What became of one credential after the other.
#[derive(Default)]
struct Problems {
    /// The one that counts: its credential is the one that was meant.
    first: Option<Problem>,
    is_passing: bool,
}

/// An image at a registry, asked for with one credential or none.
struct Visit<'a> {
    registry: &'a Registry,
    image: &'a Reference,
    credential: Option<&'a Credential>,
    /// Whose question it is.
    share: &'a Share,
    home: Url,
    /// Value of `Authorization`, once the registry wanted one.
    authorization: tokio::sync::OnceCell<HeaderValue>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
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

    /// The options.
    pub fn options(&self) -> &RegistryOptions {
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
        let home = self.home(image);
        let each = credentials.iter().map(Some).chain([None]);
        each.filter_map(move |credential| {
            Some(Visit {
                registry: self,
                image,
                credential,
                share,
                home: home.clone()?,
                authorization: tokio::sync::OnceCell::new(),
            })
        })
    }

    fn home(&self, image: &Reference) -> Option<Url> {
        let host = match image.registry() {
            "docker.io" => DOCKER,
            other => other,
        };
        let is_plain = self.options.plain_http.iter().any(|plain| plain == host);
        Url::on(host, !is_plain, format!("/v2/{}/", image.repository()))
    }

    /// Whether a registry at `home` may lead to `url`.
    fn may_lead(&self, home: &Url, url: &Url) -> bool {
        let covers = |pattern: &String| match pattern.strip_prefix('*') {
            Some(domain) => domain.starts_with('.') && url.host.ends_with(domain),
            None => *pattern == url.host,
        };
        home.is_beside(url) || (url.is_secure && url.port == 443 && self.options.redirects.iter().any(covers))
    }
}

impl Problem {
    /// Whether asking again would be answered in the same way. A mode of guarding must not depend on whether a
    /// registry was up for three seconds, so all that may pass counts as passing.
    fn is_lasting(&self) -> bool {
        let is_fact = |status: &StatusCode| matches!(status.as_u16(), 401 | 403 | 404 | 410);
        match self {
            Self::Status(status) | Self::NoToken(status) => is_fact(status),
            Self::Unusable(unusable) => *unusable != Unusable::Digest,
            Self::NoAnswer(no_answer) | Self::NoTokenServer(no_answer) => *no_answer == NoAnswer::Forbidden,
            Self::Elsewhere | Self::Circle | Self::OpenRealm | Self::Challenge | Self::Name => true,
            Self::Token => false,
        }
    }
}

impl Problems {
    fn add(&mut self, problem: Problem) {
        // Any of the credentials might have been let in.
        self.is_passing |= !problem.is_lasting();
        self.first.get_or_insert(problem);
    }

    /// None of them where the registry could not even be named.
    fn about(self, image: &Reference) -> ImageUnknown {
        let problem = self.first.unwrap_or(Problem::Name);
        let problem = format!("the registry of {image} does not tell its command: {problem}");
        match self.is_passing {
            true => ImageUnknown::Passing(problem),
            false => ImageUnknown::Lasting(problem),
        }
    }
}

impl Visit<'_> {
    async fn digest(&self) -> Result<String, Problem> {
        let name = self.image.tag().or(self.image.digest()).unwrap_or_default();
        let place = format!("manifests/{name}");
        let answer = self.ask(Method::HEAD, &place, MANIFESTS).await?;
        let header = answer.headers.get(&DIGEST).and_then(|value| value.to_str().ok());
        if let Some(digest) = header.filter(|digest| configuration::is_digest(digest)) {
            return Ok(digest.to_owned());
        }
        let answer = self.ask(Method::GET, &place, MANIFESTS).await?;
        Ok(configuration::sha256(&answer.body))
    }

    async fn configs(&self, architecture: Option<&str>) -> Result<Vec<ImageConfig>, Problem> {
        let digest = self.image.digest().unwrap_or_default();
        let manifests = match self.manifest(digest).await? {
            Document::Image(config) => vec![config],
            Document::Index(entries) => {
                // Of one digest there is one answer, however often it is listed.
                let chosen: HashSet<_> = entries
                    .into_iter()
                    .filter(|entry| entry.runs(architecture))
                    .map(|entry| entry.digest)
                    .take(MAX_PLATFORMS)
                    .collect();
                try_join_all(chosen.iter().map(|digest| self.platform(digest))).await?
            }
        };
        try_join_all(manifests.iter().map(|digest| self.config(digest))).await
    }

    /// The digest of the configuration of an image of one platform.
    async fn platform(&self, digest: &str) -> Result<String, Problem> {
        match self.manifest(digest).await? {
            Document::Image(config) => Ok(config),
            Document::Index(_) => Err(Unusable::Manifest.into()),
        }
    }

    async fn config(&self, digest: &str) -> Result<ImageConfig, Problem> {
        Ok(configuration::read(&self.content("blobs", digest, "*/*").await?)?)
    }

    async fn manifest(&self, digest: &str) -> Result<Document, Problem> {
        Ok(Document::read(
            &self.content("manifests", digest, MANIFESTS).await?,
        )?)
    }

    /// What a digest stands for, wherever it came from.
    async fn content(
        &self,
        kind: &str,
        digest: &str,
        accept: &'static str,
    ) -> Result<hyper::body::Bytes, Problem> {
        if !configuration::is_digest(digest) {
            return Err(Unusable::Digest.into());
        }
        let body = self
            .ask(Method::GET, &format!("{kind}/{digest}"), accept)
            .await?
            .body;
        if configuration::sha256(&body) != digest {
            return Err(Unusable::Digest.into());
        }
        Ok(body)
    }

    /// Asks the registry, as who it wants to see, and follows it as far as that is allowed.
    async fn ask(&self, method: Method, place: &str, accept: &'static str) -> Result<Answer, Problem> {
        let mut url = self.home.clone();
        url.target.push_str(place);
        for _ in 0..=MAX_REDIRECTS {
            let mut answer = self.ask_once(method.clone(), &url, accept).await?;
            if answer.status == StatusCode::UNAUTHORIZED && self.home.is_beside(&url) {
                let challenge = answer
                    .headers
                    .get(WWW_AUTHENTICATE)
                    .and_then(|value| value.to_str().ok());
                let challenge = challenge.and_then(Challenge::parse).ok_or(Problem::Challenge)?;
                self.authorization
                    .get_or_try_init(|| self.authorize(challenge, answer.status))
                    .await?;
                answer = self.ask_once(method.clone(), &url, accept).await?;
            }
            if !answer.status.is_redirection() {
                return match answer.status {
                    StatusCode::OK => Ok(answer),
                    status => Err(Problem::Status(status)),
                };
            }
            let location = answer.headers.get(LOCATION).and_then(|value| value.to_str().ok());
            url = location
                .and_then(|location| url.follow(location))
                .filter(|url| self.registry.may_lead(&self.home, url))
                .ok_or(Problem::Elsewhere)?;
        }
        Err(Problem::Circle)
    }

    async fn ask_once(&self, method: Method, url: &Url, accept: &'static str) -> Result<Answer, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        // Others are none of its business.
        if let Some(value) = self.authorization.get().filter(|_| self.home.is_beside(url)) {
            headers.insert(AUTHORIZATION, value.clone());
        }
        Ok(self
            .registry
            .exchange
            .ask(method, url, &headers, MAX_BODY, self.share)
            .await?)
    }

    async fn authorize(&self, challenge: Challenge, status: StatusCode) -> Result<HeaderValue, Problem> {
        let (realm, service) = match challenge {
            Challenge::Basic => return self.basic().ok_or(Problem::Status(status)),
            Challenge::Bearer { realm, service } => (realm, service),
        };
        let mut url = Url::parse(&realm).ok_or(Problem::Challenge)?;
        let is_plain = self.registry.options.plain_http.contains(&url.authority());
        if !url.is_secure && !is_plain {
            return Err(Problem::OpenRealm);
        }
        if let Some(service) = service {
            url = url.with("service", &service);
        }
        url = url.with("scope", &format!("repository:{}:pull", self.image.repository()));
        let mut headers = HeaderMap::new();
        if let Some(value) = self.basic() {
            headers.insert(AUTHORIZATION, value);
        }
        let asked = self
            .registry
            .exchange
            .ask(Method::GET, &url, &headers, MAX_TOKEN, self.share)
            .await;
        let answer = asked.map_err(Problem::NoTokenServer)?;
        if answer.status != StatusCode::OK {
            return Err(Problem::NoToken(answer.status));
        }
        let Token { token, access_token } =
            serde_json::from_slice(&answer.body).map_err(|_| Problem::Token)?;
        let token = token.or(access_token).ok_or(Problem::Token)?;
        secret(format!("Bearer {token}")).ok_or(Problem::Token)
    }

    fn basic(&self) -> Option<HeaderValue> {
        let Credential { user, password } = self.credential?;
        secret(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }
}

fn secret(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(problems: impl IntoIterator<Item = Problem>) -> ImageUnknown {
        let mut all = Problems::default();
        problems.into_iter().for_each(|problem| all.add(problem));
        all.about(&"registry.example/app:1".parse().unwrap())
    }

    #[test]
    fn only_facts_last_and_a_registry_that_is_busy_or_away_says_nothing_about_an_image() {
        let status = |code| Problem::Status(StatusCode::from_u16(code).unwrap());
        for code in [401, 403, 404, 410] {
            assert!(
                matches!(unknown([status(code)]), ImageUnknown::Lasting(_)),
                "{code}"
            );
        }
        for code in [408, 429, 500, 502, 503, 504] {
            assert!(
                matches!(unknown([status(code)]), ImageUnknown::Passing(_)),
                "{code}"
            );
        }
        assert!(Problem::NoToken(StatusCode::FORBIDDEN).is_lasting());
        assert!(!Problem::NoToken(StatusCode::TOO_MANY_REQUESTS).is_lasting());
        assert!(Problem::NoAnswer(NoAnswer::Forbidden).is_lasting());
        for passing in [
            NoAnswer::Unreachable,
            NoAnswer::Untrusted,
            NoAnswer::Broken,
            NoAnswer::TooLong,
        ] {
            assert!(!Problem::NoAnswer(passing).is_lasting(), "{passing:?}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_trusted_says_where_its_authority_can_be_named() {
        let unknown = unknown([Problem::NoAnswer(NoAnswer::Untrusted)]);
        let sentence = unknown.to_string();
        assert!(
            sentence.contains("name that in registry.ca of the chart"),
            "{sentence}"
        );
    }

    #[test]
    fn what_passes_for_one_credential_passes_for_all_and_the_first_is_named() {
        let status = |code| Problem::Status(StatusCode::from_u16(code).unwrap());
        let unknown = unknown([status(403), status(503)]);
        let ImageUnknown::Passing(problem) = &unknown else {
            panic!("{unknown:?}")
        };
        assert!(problem.contains("403") && !problem.contains("503"), "{problem}");
    }
}
