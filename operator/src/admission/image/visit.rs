//! One image at its registry, asked for with one credential or none.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::try_join_all;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use oci_spec::distribution::Reference;
use serde::Deserialize;

use super::challenge::Challenge;
use super::configuration::{self, Document, Unusable};
use super::credentials::Credential;
use super::exchange::{Answer, Exchange};
use super::options::RegistryOptions;
use super::problem::Problem;
use super::share::Share;
use super::url::Url;
use crate::admission::inject::ImageConfig;

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

/// An image at a registry, asked for with one credential or none.
pub(super) struct Visit<'a> {
    pub(super) options: &'a RegistryOptions,
    pub(super) exchange: &'a Exchange,
    pub(super) image: &'a Reference,
    pub(super) credential: Option<&'a Credential>,
    pub(super) share: &'a Share,
    pub(super) home: Url,
    /// Value of `Authorization`, once the registry wanted one.
    pub(super) authorization: tokio::sync::OnceCell<HeaderValue>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Visit<'_> {
    pub(super) async fn digest(&self) -> Result<String, Problem> {
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

    pub(super) async fn configs(&self, architecture: Option<&str>) -> Result<Vec<ImageConfig>, Problem> {
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

    /// Asks the registry with the authorization that it wants, and follows its redirects as far as that is allowed.
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
                .filter(|url| self.options.may_lead(&self.home, url))
                .ok_or(Problem::Elsewhere)?;
        }
        Err(Problem::Circle)
    }

    async fn ask_once(&self, method: Method, url: &Url, accept: &'static str) -> Result<Answer, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        // Other hosts do not get the credentials.
        if let Some(value) = self.authorization.get().filter(|_| self.home.is_beside(url)) {
            headers.insert(AUTHORIZATION, value.clone());
        }
        Ok(self
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
        let is_plain = self.options.plain_http.contains(&url.authority());
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
