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
use tokio_rustls::TlsConnector;

use super::share::{Group, Share, Turn};
use super::url::Url;
use crate::addresses::{self, Network};
use crate::admission::asker::Asker;
use crate::admission::shared_places::Fair;

/// Bodies that are read at once: with [`super::registry`]'s bound on one, what all answers together need.
const BODIES: usize = 32;

/// Bodies of one namespace that are read at once: as many as it may have questions under way.
const BODIES_OF_ONE: usize = 4;

/// How long a body may take: some thousand times what a manifest needs. The server decides, and keeps a place for so long.
const BODY: Duration = Duration::from_secs(1);

/// Connections to one port of one host that are being made at once for one namespace: a server that drops the first
/// packet takes no more of its places than these.
const CONNECTING: usize = 2;

/// Connections that are being made at once in all: a tenth of the files that a process may have open, and so many packets
/// in half a second do no harm to anybody.
const CONNECTING_IN_ALL: usize = 100;

/// Of these, those of one namespace: as many as it may have questions under way.
const CONNECTING_OF_ONE: usize = 4;

/// Names that are being resolved at once in all. The C library resolves on threads, of which a process has 512 for this and
/// other work (`max_blocking_threads` of tokio), and a look-up that is given up goes on until its resolver answers.
const RESOLVING_IN_ALL: usize = 128;

/// Of these, those of one namespace: as many as it may have questions under way.
const RESOLVING_OF_ONE: usize = 4;

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
    bodies: Fair,
    resolving: Fair,
    connections: Fair,
    connecting: Group<(Asker, String, u16)>,
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
    #[error("its answer does not end")]
    TooSlow,
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
            bodies: Fair::new(BODIES, BODIES_OF_ONE),
            resolving: Fair::new(RESOLVING_IN_ALL, RESOLVING_OF_ONE),
            connections: Fair::new(CONNECTING_IN_ALL, CONNECTING_OF_ONE),
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
        let turn = Arc::new(share.turn().await);
        let stream = self
            .connect(url, share.asker(), &turn)
            .await
            .inspect_err(|error| {
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
            return read_answer(stream, request, limit, self.bodies.take(share.asker())).await;
        }
        let name = ServerName::try_from(url.host.clone()).map_err(|_| NoAnswer::Untrusted)?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await.map_err(|error| {
            tracing::info!(host = url.authority(), %error, "Failed to speak TLS with a registry");
            NoAnswer::Untrusted
        })?;
        read_answer(stream, request, limit, self.bodies.take(share.asker())).await
    }

    /// The addresses of a host. The turn and the place are taken for as long as the resolver works on it, also if the review
    /// is given up before.
    async fn resolve(&self, url: &Url, asker: &Asker, turn: Arc<Turn>) -> Result<Vec<SocketAddr>, NoAnswer> {
        let place = self.resolving.take(asker).await;
        let (host, port) = (url.host.clone(), url.port);
        let resolved = to_its_end((turn, place), async move {
            tokio::net::lookup_host((host, port)).await.map(Iterator::collect)
        });
        resolved.await.and_then(Result::ok).ok_or(NoAnswer::Unreachable)
    }

    /// The address that is checked is the one that is connected to: a name cannot mean another one meanwhile.
    async fn connect(&self, url: &Url, asker: &Asker, turn: &Arc<Turn>) -> Result<TcpStream, NoAnswer> {
        let found = self.resolve(url, asker, Arc::clone(turn)).await?;
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
        // Nobody waits for a server that somebody else has named.
        let connecting = self.connecting.of((asker.clone(), url.host.clone(), url.port));
        // It is never closed.
        let _own = connecting.acquire().await;
        let _place = self.connections.take(asker).await;
        for address in found.into_iter().take(ADDRESSES) {
            if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
                return Ok(stream);
            }
        }
        Err(NoAnswer::Unreachable)
    }
}

/// What `work` gives. It goes on when the caller gives up, and `held` is dropped at its end only.
async fn to_its_end<T: Send + 'static>(
    held: impl Send + 'static,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let task = tokio::spawn(async move {
        let _held = held;
        work.await
    });
    task.await.ok()
}

/// Sends a question over a connection and reads the answer, of which the body has `limit` bytes at most, when there is
/// a `place` for it.
///
/// # Errors
/// When there is none that can be used.
pub(crate) async fn read_answer<T>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
    limit: usize,
    place: impl Future<Output = T>,
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
        let _place = place.await;
        let body = tokio::time::timeout(BODY, Limited::new(body, limit).collect()).await;
        let body = body.map_err(|_| NoAnswer::TooSlow)?.map_err(|error| {
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

    #[tokio::test]
    async fn a_name_that_is_still_being_resolved_for_a_review_that_was_given_up_keeps_its_place() {
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let (answer, resolver) = tokio::sync::oneshot::channel::<()>();
        let mut review = Box::pin(to_its_end(place, resolver));
        assert!(futures_util::poll!(review.as_mut()).is_pending());
        drop(review);
        tokio::task::yield_now().await;
        assert!(places.try_acquire().is_err());
        answer.send(()).unwrap();
        assert!(places.acquire().await.is_ok());
    }

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
