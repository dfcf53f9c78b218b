//! Makes an authority and one certificate under it, and decides when it is time for the next.
//!
//! An authority signs one certificate and its key is forgotten: nobody can steal what is not kept.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::CertificateError;

/// How long a certificate is valid.
pub const LIFE: Duration = Duration::from_secs(90 * 24 * 3600);

/// Clocks of API servers may be behind ours by this much.
const SKEW: Duration = Duration::from_secs(3600);

/// A certificate, and the authorities by which it and the one before it are known. All PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The authority of `certificate`, then that of the one before, so that a server which still shows
    /// that one is trusted.
    pub authorities: String,
    /// What is shown to the API server.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// When it was made, in seconds since 1970.
    pub made_at: u64,
}

/// Makes a certificate for `names`. `previous` are the authorities of the one that it replaces; of these
/// the newest is kept.
///
/// # Errors
/// When a name is no DNS name.
pub fn issue(names: &[String], previous: Option<&str>, now: u64) -> Result<Issued, CertificateError> {
    let mut authority = params(now)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    authority
        .distinguished_name
        .push(DnType::CommonName, format!("lockkeeper webhook {now}"));
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let mut leaf = params(now)?;
    leaf.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.distinguished_name.push(
        DnType::CommonName,
        names.first().map_or("lockkeeper", String::as_str),
    );
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &authority)?;
    let before = previous.and_then(first).unwrap_or_default();
    Ok(Issued {
        authorities: format!("{}{before}", authority.pem()),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        made_at: now,
    })
}

impl Issued {
    /// When the next one is to be made: after two thirds of its life.
    pub fn renew_at(&self) -> u64 {
        self.made_at + LIFE.as_secs() * 2 / 3
    }
}

fn params(now: u64) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    let at = |seconds: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = at(now.saturating_sub(SKEW.as_secs()));
    params.not_after = at(now + LIFE.as_secs());
    params.distinguished_name = rcgen::DistinguishedName::new();
    Ok(params)
}

/// The first certificate of several.
fn first(pem: &str) -> Option<String> {
    const END: &str = "-----END CERTIFICATE-----";
    pem.find(END).map(|at| format!("{}\n", &pem[..at + END.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{Error, RootCertStore};

    const NOW: u64 = 1_800_000_000;
    const NAME: &str = "lockkeeper-webhook.lockkeeper.svc";

    fn verify(issued: &Issued, authorities: &str, name: &str, at: u64) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
            roots.add(authority.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
        verifier
            .verify_server_cert(&certificate, &[], &name, &[], at)
            .map(drop)
    }

    #[test]
    fn a_certificate_is_valid_for_its_name_and_its_time_only() {
        let issued = issue(&[NAME.to_owned()], None, NOW).unwrap();
        let trusted = |name, at| verify(&issued, &issued.authorities, name, at).is_ok();
        assert!(trusted(NAME, NOW) && trusted(NAME, NOW - SKEW.as_secs()));
        assert!(trusted(NAME, NOW + LIFE.as_secs() - 1));
        assert!(!trusted(NAME, NOW + LIFE.as_secs() + 1));
        assert!(!trusted("other.lockkeeper.svc", NOW));
    }

    #[test]
    fn a_server_that_still_shows_the_certificate_before_is_trusted_during_a_rotation() {
        let names = [NAME.to_owned()];
        let first = issue(&names, None, NOW).unwrap();
        let later = first.renew_at();
        assert_eq!(later, NOW + 60 * 24 * 3600);
        let second = issue(&names, Some(&first.authorities), later).unwrap();
        let third = issue(&names, Some(&second.authorities), second.renew_at()).unwrap();
        for issued in [&first, &second] {
            assert_eq!(verify(issued, &second.authorities, NAME, later), Ok(()));
        }
        assert!(verify(&second, &first.authorities, NAME, later).is_err());
        // Authorities do not pile up.
        assert_eq!(third.authorities.matches("BEGIN").count(), 2);
        assert!(verify(&first, &third.authorities, NAME, later).is_err());
    }
}
