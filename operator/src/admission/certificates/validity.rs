//! The validity period of a certificate, and whether authorities vouch for it. Both come from the verifier of rustls:
//! asked about a time that is too early or too late, it names the limit in its error.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError as Unverified, Error, RootCertStore};

/// Later than any certificate is valid (the year 9999 is the last that one can name), in seconds since 1970.
const NEVER: u64 = 300_000_000_000;

/// From when until when, in seconds since 1970, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
}

impl Window {
    /// The window of a certificate; `None` if it is not one.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        // Times come before names and authorities.
        let verifier = verifier([certificate.clone().into_owned()])?;
        let name = ServerName::try_from("example.org").ok()?;
        let at = |seconds| verify(&verifier, certificate, &[], &name, seconds);
        let Err(Error::InvalidCertificate(Unverified::NotValidYetContext { not_before, .. })) = at(0) else {
            return None;
        };
        let Err(Error::InvalidCertificate(Unverified::ExpiredContext { not_after, .. })) = at(NEVER) else {
            return None;
        };
        Some(Self {
            not_before: not_before.as_secs(),
            not_after: not_after.as_secs(),
        })
    }
}

/// Whether these authorities vouch for the first of these certificates (all PEM), for this name, at this time.
pub(crate) fn is_vouched_for(certificates: &[u8], authorities: &[u8], name: &str, at: u64) -> bool {
    let read = |pem| {
        CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .ok()
    };
    let (Some(chain), Some(authorities)) = (read(certificates), read(authorities)) else {
        return false;
    };
    let (Some(verifier), Ok(name)) = (verifier(authorities), ServerName::try_from(name)) else {
        return false;
    };
    let Some((first, rest)) = chain.split_first() else {
        return false;
    };
    verify(&verifier, first, rest, &name, at).is_ok()
}

fn verifier(
    authorities: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Option<Arc<WebPkiServerVerifier>> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).ok()?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .ok()
}

fn verify(
    verifier: &WebPkiServerVerifier,
    certificate: &CertificateDer<'_>,
    rest: &[CertificateDer<'_>],
    name: &ServerName<'_>,
    at: u64,
) -> Result<(), Error> {
    let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
    verifier
        .verify_server_cert(certificate, rest, name, &[], at)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::certificates::authority::{LIFE, issue};

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn of_a_certificate_it_is_known_from_when_until_when_it_is_valid() {
        let issued = issue(&["example.org".to_owned()], None, NOW).unwrap();
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let window = Window::of(&certificate).unwrap();
        assert_eq!(
            (window.not_before, window.not_after),
            (NOW - 3600, NOW + LIFE.as_secs())
        );
        assert_eq!(Window::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
