//! The client side of the webhook's TLS: its certificate, and the authorities that it trusts.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lockkeeper_operator::admission::certificates::authority::{Issued, issue};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// A client that trusts these authorities (PEM), and no others.
pub fn trusting(authorities: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// A certificate for this name from today on, after another one or as the first.
#[expect(
    clippy::disallowed_methods,
    reason = "certificates are valid by the wall clock"
)]
pub fn issued(name: &str, before: Option<&Issued>) -> Issued {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    issue(
        &[name.to_owned()],
        before.map(|before| before.authorities.as_str()),
        now,
    )
    .unwrap()
}
