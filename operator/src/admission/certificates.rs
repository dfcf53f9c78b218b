//! The webhook's certificate: what is served, and where it comes from.
//!
//! Either files (a Secret of cert-manager's or of the user's, mounted) or one that the operator makes and
//! rotates itself ([`own`]). Either way it is replaced while connections go on.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use self::validity::Window;
use crate::admission::callers::Callers;

pub mod authority;
mod bundle;
pub mod own;
pub(crate) mod validity;

/// How often files are looked at. A kubelet brings a new Secret into a volume within a minute or two.
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("the {0} is not PEM: {1}")]
    Pem(&'static str, rustls::pki_types::pem::Error),
    /// It does not fit or is of an unknown kind.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// The certificate that is served now. A clone is the same one.
#[derive(Clone, Debug, Default)]
pub struct Served {
    now: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
    validity: Validity,
}

/// The validity period of the served certificate, in seconds since 1970; 0 while there is none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validity {
    pub(crate) not_before: Gauge<u64, AtomicU64>,
    pub(crate) not_after: Gauge<u64, AtomicU64>,
}

impl Served {
    /// None yet. What is served is shown in `validity`.
    pub(crate) fn measured(validity: Validity) -> Self {
        Self {
            validity,
            ..Self::default()
        }
    }

    /// Serves this one from now on.
    ///
    /// # Errors
    /// When it cannot be served; the one before stays then.
    pub fn set(&self, certificate: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        let certified = certified(certificate, key)?;
        if let Some(window) = certified.cert.first().and_then(Window::of) {
            self.validity.not_before.set(window.not_before);
            self.validity.not_after.set(window.not_after);
        }
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
        Ok(())
    }

    pub(crate) fn is_there(&self) -> bool {
        self.now.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// For a server that always shows the newest one, to these callers. Without one, handshakes fail.
    ///
    /// # Errors
    /// When the provider of rustls lacks what TLS 1.2 and 1.3 need.
    pub fn server_config(&self, callers: &Callers) -> Result<Arc<ServerConfig>, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = match callers {
            Callers::Anybody => config.with_no_client_auth(),
            Callers::Certified(verifier) => config.with_client_cert_verifier(Arc::clone(verifier)),
        };
        Ok(Arc::new(config.with_cert_resolver(Arc::new(self.clone()))))
    }
}

/// A certificate (with those between it and its authority) and its key, both PEM.
fn certified(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| CertificateError::Pem("certificate", error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| CertificateError::Pem("key", error))?;
    Ok(CertifiedKey::from_der(
        chain,
        key,
        &aws_lc_rs::default_provider(),
    )?)
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves `tls.crt` and `tls.key` of a folder, and what they are replaced with. Never ends.
pub(crate) async fn follow_files(folder: PathBuf, served: Served, ready: watch::Sender<bool>) {
    let mut last = None;
    loop {
        match read(&folder) {
            Ok(files) if last.as_ref() == Some(&files) => {}
            Ok(files) => match served.set(&files.0, &files.1) {
                Ok(()) => {
                    tracing::info!(folder = %folder.display(), "Serving a new certificate");
                    ready.send_replace(true);
                    last = Some(files);
                }
                // Certificate and key are two files: perhaps only one of them is new yet.
                Err(error) => {
                    tracing::warn!(%error, folder = %folder.display(), "Failed to use the certificate")
                }
            },
            Err(error) => {
                tracing::warn!(%error, cause = ?std::error::Error::source(&error), "Failed to read the certificate");
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn read(folder: &Path) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
    let file = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|error| CertificateError::Read(path, error))
    };
    Ok((file("tls.crt")?, file("tls.key")?))
}
