//! One question to one server, which is not trusted: bounded in the addresses that are asked and in the
//! bytes that are read. The caller bounds its time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderMap, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::share::{Group, Share};
use super::url::Url;
use crate::addresses::{self, Network};

/// Bodies that are read at once: with [`super::registry`]'s bound on one, what all answers together need.
const BODIES: usize = 32;

/// Connections to one host that are being made at once: a host that drops the first packet takes no more places than
/// these.
const CONNECTING: usize = 2;

/// How long a server may take to accept a connection, at each of its addresses: a few round trips around the earth.
const CONNECT: Duration = Duration::from_millis(500);

/// Addresses of a name that are tried.
const ADDRESSES: usize = 4;

/// An answer's head may be this long, in bytes: twice what servers take of a request's.
const HEAD_BYTES: usize = 16 * 1024;

const AGENT: &str = concat!("lockkeeper-operator/", env!("CARGO_PKG_VERSION"));

#[derive(Debug)]
pub(crate) struct Exchange {
    tls: Arc<ClientConfig>,
    allowed: Vec<Network>,
    bodies: Semaphore,
    connecting: Group<String>,
}

/// What a server said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer. It repeats nothing that the server or the network has said: a user who names a server does
/// not learn what is behind an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// Also when its name is not known.
    #[error("there is no connection to it")]
    Unreachable,
    /// See [`addresses::check`].
    #[error("its address is one of loopback, link-local or metadata, where no registry is asked")]
    Forbidden,
    /// It speaks no TLS, or shows a certificate that is not trusted.
    #[error(
        "its certificate is not trusted; if your own authority signed it, add that authority to registry.ca of the chart \
         (--registry-ca)"
    )]
    Untrusted,
    /// It speaks no HTTP, or breaks off.
    #[error("it does not speak HTTP")]
    Broken,
    #[error("its answer is too long")]
    TooLong,
}

/// What is wrong with authorities that are to be trusted.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the authorities for registries: {0}")]
pub struct InvalidAuthorities(String);

impl Exchange {
    /// Trusts the authorities of the system and those in `authorities` (PEM); asks at addresses in `allowed`
    /// whatever they are.
    ///
    /// # Errors
    /// When `authorities` cannot be used.
    pub(crate) fn new(authorities: Option<&[u8]>, allowed: Vec<Network>) -> Result<Self, InvalidAuthorities> {
        let invalid = |error: &dyn std::fmt::Display| InvalidAuthorities(error.to_string());
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        for error in system.errors {
            tracing::warn!(%error, "Failed to read an authority of the system");
        }
        roots.add_parsable_certificates(system.certs);
        let mut given = 0;
        for certificate in authorities.into_iter().flat_map(CertificateDer::pem_slice_iter) {
            let certificate = certificate.map_err(|error| invalid(&error))?;
            roots.add(certificate).map_err(|error| invalid(&error))?;
            given += 1;
        }
        if authorities.is_some() && given == 0 {
            return Err(invalid(&"there is no certificate in them"));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            tls: Arc::new(tls),
            allowed,
            bodies: Semaphore::new(BODIES),
            connecting: Group::new(CONNECTING),
        })
    }

    /// Sends a question without a body and reads the answer, of which the body has `limit` bytes at most.
    /// Follows no redirect. Waits for a place in the caller's share.
    ///
    /// # Errors
    /// When there is none that can be used.
    pub(crate) async fn ask(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        limit: usize,
        share: &Share,
    ) -> Result<Answer, NoAnswer> {
        let _turn = share.turn().await;
        let stream = self.connect(url).await.inspect_err(|error| {
            tracing::debug!(host = url.authority(), %error, "Failed to reach a registry");
        })?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        *request.uri_mut() = url.target.parse().map_err(|_| NoAnswer::Broken)?;
        *request.headers_mut() = headers.clone();
        let host = url.authority().parse().map_err(|_| NoAnswer::Broken)?;
        request.headers_mut().insert(HOST, host);
        let agent = hyper::header::HeaderValue::from_static(AGENT);
        request.headers_mut().insert(USER_AGENT, agent);
        if !url.is_secure {
            return read_answer(stream, request, limit, &self.bodies).await;
        }
        let name = ServerName::try_from(url.host.clone()).map_err(|_| NoAnswer::Untrusted)?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await.map_err(|error| {
            tracing::info!(host = url.authority(), %error, "Failed to speak TLS with a registry");
            NoAnswer::Untrusted
        })?;
        read_answer(stream, request, limit, &self.bodies).await
    }

    /// The address that is checked is the one that is connected to: a name cannot mean another one meanwhile.
    async fn connect(&self, url: &Url) -> Result<TcpStream, NoAnswer> {
        let found = tokio::net::lookup_host((url.host.as_str(), url.port)).await;
        let found: Vec<SocketAddr> = found.map_err(|_| NoAnswer::Unreachable)?.collect();
        for found in &found {
            if let Err(kind) = addresses::check(found.ip(), &self.allowed) {
                tracing::warn!(
                    host = url.authority(),
                    address = %found.ip(),
                    "A pod names a registry whose address is {kind}; --registry-networks can allow it"
                );
                return Err(NoAnswer::Forbidden);
            }
        }
        let connecting = self.connecting.of(url.host.clone());
        // It is never closed.
        let _place = connecting.acquire().await;
        for address in found.into_iter().take(ADDRESSES) {
            if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
                return Ok(stream);
            }
        }
        Err(NoAnswer::Unreachable)
    }
}

/// Sends a question over a connection and reads the answer, of which the body has `limit` bytes at most.
///
/// # Errors
/// When there is none that can be used.
pub(crate) async fn read_answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
    limit: usize,
    bodies: &Semaphore,
) -> Result<Answer, NoAnswer> {
    let broken = |_| NoAnswer::Broken;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let mut connection = std::pin::pin!(connection);
    let asked = async {
        let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        // It is never closed.
        let _place = bodies.acquire().await;
        let body = Limited::new(body, limit).collect().await.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                NoAnswer::TooLong
            } else {
                NoAnswer::Broken
            }
        })?;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    };
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        answer = &mut asked => answer,
        // What it has read before its end may be the whole answer.
        _ = &mut connection => asked.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_authorities_without_a_certificate_is_refused() {
        for empty in ["", "no certificate\n"] {
            let refused = Exchange::new(Some(empty.as_bytes()), Vec::new()).unwrap_err();
            assert!(
                refused.to_string().ends_with("there is no certificate in them"),
                "{refused}"
            );
        }
    }
}
