//! Makes an authority and one certificate under it, and decides when it is time for the next.
//!
//! An authority signs one certificate and its key is forgotten: a key that is not kept cannot be stolen.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::validity::{Window, is_vouched_for};
use super::{CertificateError, certified};

/// How long a certificate is valid.
pub(crate) const LIFE: Duration = Duration::from_secs(90 * 24 * 3600);

/// What an authority of ours is called, before the time at which it was made.
const MARK: &str = "lockkeeper webhook ";

/// Clocks of API servers may be behind ours by this much.
const SKEW: Duration = Duration::from_secs(3600);

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// A certificate, and the authorities by which it and the one before it are known. All PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The authority of `certificate`, then that of the one before, so that a server which still shows
    /// that one is trusted.
    pub authorities: String,
    /// What is shown to the API server.
    pub certificate: String,
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
    let newest = previous.and_then(|previous| each(previous).next());
    let newest = newest.map(|newest| format!("{newest}\n")).unwrap_or_default();
    issue_beside(names, &newest, now)
}

/// Makes a certificate for `names`, beside other authorities, all of which are kept.
///
/// # Errors
/// When a name is no DNS name.
pub(crate) fn issue_beside(names: &[String], others: &str, now: u64) -> Result<Issued, CertificateError> {
    let mut authority = params(now)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    authority
        .distinguished_name
        .push(DnType::CommonName, format!("{MARK}{now}"));
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
    Ok(Issued {
        authorities: format!("{}{others}", authority.pem()),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        made_at: now,
    })
}

impl Issued {
    /// When the next one is to be made: after two thirds of its life.
    pub(crate) fn renew_at(&self) -> u64 {
        self.made_at.saturating_add(LIFE.as_secs() * 2 / 3)
    }

    /// Whether it is time for the next one: also where this one is not valid at this time (one that was made while a
    /// clock was ahead is not valid yet), or another program made it and it ends sooner than ours would.
    pub(crate) fn is_due(&self, name: &str, now: u64) -> bool {
        let is_valid =
            |at| is_vouched_for(self.certificate.as_bytes(), self.authorities.as_bytes(), name, at);
        now >= self.renew_at() || !is_valid(now) || !is_valid(now + LIFE.as_secs() / 3)
    }

    /// Whether it can be served, apart from its validity period: key and certificate are a pair, and its authorities
    /// vouch for it.
    pub(crate) fn is_sound(&self, name: &str) -> bool {
        let Ok(certified) = certified(self.certificate.as_bytes(), self.key.as_bytes()) else {
            return false;
        };
        let window = certified.cert.first().and_then(Window::of);
        window.is_some_and(|window| {
            let (certificate, authorities) = (self.certificate.as_bytes(), self.authorities.as_bytes());
            is_vouched_for(certificate, authorities, name, window.not_after)
        })
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

/// The certificates of a bundle, one by one, in PEM.
pub(crate) fn each(pem: &str) -> impl Iterator<Item = &str> {
    let mut rest = pem;
    std::iter::from_fn(move || {
        let begin = rest.find(BEGIN)?;
        let end = begin + rest[begin..].find(END)? + END.len();
        let one = &rest[begin..end];
        rest = &rest[end..];
        Some(one)
    })
}

/// Whether this is an authority that an operator has made.
pub(crate) fn is_ours(pem: &str) -> bool {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
    certificate.is_ok_and(|certificate| {
        let mark = MARK.as_bytes();
        certificate.windows(mark.len()).any(|part| part == mark)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const NAME: &str = "lockkeeper-webhook.lockkeeper.svc";

    fn verify(issued: &Issued, authorities: &str, name: &str, at: u64) -> bool {
        is_vouched_for(issued.certificate.as_bytes(), authorities.as_bytes(), name, at)
    }

    #[test]
    fn a_certificate_is_valid_for_its_name_and_its_time_only() {
        let issued = issue(&[NAME.to_owned()], None, NOW).unwrap();
        let trusted = |name, at| verify(&issued, &issued.authorities, name, at);
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
            assert!(verify(issued, &second.authorities, NAME, later));
        }
        assert!(!verify(&second, &first.authorities, NAME, later));
        // Authorities do not pile up.
        assert_eq!(third.authorities.matches("BEGIN").count(), 2);
        assert!(!verify(&first, &third.authorities, NAME, later));
    }

    #[test]
    fn a_certificate_that_was_made_while_a_clock_was_ahead_is_replaced_when_the_clock_is_right_again() {
        let names = [NAME.to_owned()];
        let ahead = issue(&names, None, NOW + 30 * 24 * 3600).unwrap();
        assert!(ahead.is_due(NAME, NOW), "it is not valid yet");
        assert!(ahead.is_sound(NAME), "any replica may show it until then");
        let right = issue(&names, None, NOW).unwrap();
        assert!(!right.is_due(NAME, NOW) && !right.is_due(NAME, right.renew_at() - 1));
        assert!(right.is_due(NAME, right.renew_at()));
        // A clock that is a little behind counts as right.
        assert!(!right.is_due(NAME, NOW - SKEW.as_secs()));
    }

    #[test]
    fn a_certificate_of_somebody_else_serves_while_it_is_vouched_for_and_not_longer_than_it_is_valid() {
        // Whatever stands beside it of when ours was made.
        let ours = issue(&[NAME.to_owned()], None, NOW).unwrap();
        let theirs = Issued {
            made_at: NOW + 40 * 24 * 3600,
            ..ours.clone()
        };
        assert!(!theirs.is_due(NAME, NOW + 59 * 24 * 3600));
        assert!(
            theirs.is_due(NAME, NOW + 61 * 24 * 3600),
            "it ends before a third of ours would"
        );
        let other = issue(&["other.example".to_owned()], None, NOW).unwrap();
        assert!(!other.is_sound(NAME), "it is for another name");
        for unsound in [
            Issued {
                key: other.key.clone(),
                ..ours.clone()
            },
            Issued {
                authorities: other.authorities.clone(),
                ..ours.clone()
            },
            Issued {
                certificate: "none".into(),
                ..ours.clone()
            },
        ] {
            assert!(!unsound.is_sound(NAME));
        }
    }

    #[test]
    fn of_a_bundle_the_authorities_that_an_operator_made_are_told_from_others() {
        let ours = issue(&[NAME.to_owned()], None, NOW).unwrap();
        let next = issue(&[NAME.to_owned()], Some(&ours.authorities), NOW).unwrap();
        let other = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let bundle = format!("{}\n{}", other.cert.pem(), next.authorities);
        let found: Vec<_> = each(&bundle).map(is_ours).collect();
        assert_eq!(found, [false, true, true]);
        assert_eq!(each("nonsense").count(), 0);
    }
}
