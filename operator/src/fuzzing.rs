//! The parsers of untrusted input, for the crate `fuzz`. They are not in the released binary: see the feature
//! `fuzzing`.

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, LOCATION, WWW_AUTHENTICATE};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::admission::callers;
use crate::admission::image::parsers::{self, Answer, Challenge, Url, read_answer};
use crate::admission::inject::ImageConfig;
use crate::admission::webhook::{server, weight};

pub use crate::admission::image::parsers::Document;

/// What a review needs of memory, in bytes.
pub fn weight(review: &[u8]) -> usize {
    weight::of(review)
}

/// Longest review, and the heaviest one.
pub const REVIEW_LIMITS: (usize, usize) = (server::MAX_BODY, server::MAX_WEIGHT);

/// Realm and service of a challenge; `None` for the realm of Basic.
pub fn challenge(header: &str) -> Option<(Option<String>, Option<String>)> {
    Challenge::parse(header).map(|challenge| match challenge {
        Challenge::Basic => (None, None),
        Challenge::Bearer { realm, service } => (Some(realm), service),
    })
}

/// A URL as it is written.
pub fn url(text: &str) -> Option<String> {
    Url::parse(text).map(|url| url.to_string())
}

/// Where a `Location` leads from a URL, and whether that is beside it.
pub fn follow(from: &str, location: &str) -> Option<(String, bool)> {
    let from = Url::parse(from)?;
    let to = from.follow(location)?;
    Some((to.to_string(), to.is_beside(&from)))
}

pub fn with_parameter(url: &str, value: &str) -> Option<String> {
    Some(Url::parse(url)?.with("service", value).to_string())
}

/// A manifest or an index.
pub fn document(json: &[u8]) -> Option<Document> {
    Document::read(json).ok()
}

pub fn configuration(json: &[u8]) -> Option<ImageConfig> {
    parsers::configuration(json).ok()
}

pub fn sha256(content: &[u8]) -> String {
    parsers::sha256(content)
}

pub fn is_digest(text: &str) -> bool {
    parsers::is_digest(text)
}

pub struct RegistryAnswer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// `WWW-Authenticate`.
    pub challenge: Option<String>,
    pub location: Option<String>,
}

/// Reads an answer with a body of so many bytes at most.
pub async fn registry_answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    limit: usize,
) -> Option<RegistryAnswer> {
    let request = Request::new(Empty::new());
    let Answer {
        status,
        headers,
        body,
    } = read_answer(stream, request, limit, std::future::ready(()))
        .await
        .ok()?;
    let text = |name| headers.get(name)?.to_str().ok().map(str::to_owned);
    Some(RegistryAnswer {
        status: status.as_u16(),
        challenge: text(WWW_AUTHENTICATE),
        location: text(LOCATION),
        headers,
        body,
    })
}

/// The names in a certificate (DER).
pub fn names(certificate: &[u8]) -> Vec<String> {
    callers::names(certificate)
}
