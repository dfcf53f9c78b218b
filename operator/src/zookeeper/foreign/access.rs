//! From Secrets to a way into an ensemble. Pure.

use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::zookeeper::{ConnectString, Credentials, InvalidTls, ZooKeeper};
use tokio::sync::watch;

use super::source::Source;
use crate::identity::{IDENTITIES, Identity};
use crate::kubernetes::objects::{AUTH, CA, CERTIFICATE, KEY};
use crate::problem::Problem;
use crate::zookeeper::sandbox::{SESSION_TIMEOUT, wire};

/// The identities and certificates for an ensemble. Its `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// All of them at once.
    pub(crate) identities: Vec<Identity>,
    /// Where the ensemble speaks TLS.
    pub(crate) tls: Option<Tls>,
}

/// Certificates, PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    ca: String,
    own: Option<(String, String)>,
}

// === impl Access ===

impl Access {
    /// The same for the process that goes there.
    pub(crate) fn tls(&self) -> Option<wire::Tls> {
        let Tls { ca, own } = self.tls.clone()?;
        Some(wire::Tls { ca, own })
    }

    /// How to reach the ensemble so.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub(crate) fn zookeeper(&self, source: &Source) -> Result<ZooKeeper, Problem> {
        let connect: ConnectString = source
            .connect
            .parse()
            .map_err(|error| Problem::new(Reason::InvalidSpec, format!("zookeeper.connect: {error}")))?;
        let identities = self.identities.iter().map(Identity::digest_auth).collect();
        let (_, identities) = watch::channel(identities);
        let zookeeper =
            ZooKeeper::new(connect, SESSION_TIMEOUT).with_credentials(Credentials::Digests(identities));
        let Some(Tls { ca, own }) = &self.tls else {
            return Ok(zookeeper);
        };
        let own = own
            .as_ref()
            .map(|(certificate, key)| (certificate.as_str(), key.as_str()));
        zookeeper.with_tls(ca, own).map_err(|error| {
            let key = match error {
                InvalidTls::Authorities(_) => CA,
                InvalidTls::Certificate(_) => CERTIFICATE,
                InvalidTls::Key(_) => KEY,
                InvalidTls::Server(_) => return Problem::new(Reason::InvalidSpec, error.to_string()),
            };
            unusable(format!(
                "key {key} of Secret {}: {error}",
                source.tls.as_deref().unwrap_or_default()
            ))
        })
    }
}

/// The identities in a user's Secret.
///
/// # Errors
/// What is missing or wrong.
pub(crate) fn identities(secret: &Secret, name: &str) -> Result<Vec<Identity>, Problem> {
    let auth = text(secret, name, AUTH)?.ok_or_else(|| {
        unusable(format!(
            "key {AUTH} of Secret {name} is missing: write digest:USER:PASSWORD"
        ))
    })?;
    let wrong = |_| {
        unusable(format!(
            "key {AUTH} of Secret {name} must hold digest:USER:PASSWORD or USER:PASSWORD, one in each line, {IDENTITIES} of \
             them at most and none twice"
        ))
    };
    Identity::parse_lines(auth).map_err(wrong)
}

/// The certificates in a user's Secret.
///
/// # Errors
/// What is missing or wrong.
pub(crate) fn tls(secret: &Secret, name: &str) -> Result<Tls, Problem> {
    let missing = |key: &str, what: &str| unusable(format!("key {key} of Secret {name} is missing: {what}"));
    let ca = text(secret, name, CA)?.ok_or_else(|| {
        missing(
            CA,
            "the certificates of the authorities that sign those of the ensemble",
        )
    })?;
    let own = match (text(secret, name, CERTIFICATE)?, text(secret, name, KEY)?) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate.to_owned(), key.to_owned())),
        (Some(_), None) => return Err(missing(KEY, &format!("{CERTIFICATE} needs it"))),
        (None, Some(_)) => return Err(missing(CERTIFICATE, &format!("{KEY} needs it"))),
    };
    Ok(Tls {
        ca: ca.to_owned(),
        own,
    })
}

fn text<'a>(secret: &'a Secret, name: &str, key: &str) -> Result<Option<&'a str>, Problem> {
    let Some(value) = secret.data.as_ref().and_then(|data| data.get(key)) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&value.0);
    text.map(Some)
        .map_err(|_| unusable(format!("key {key} of Secret {name} is not text")))
}

pub(super) fn unusable(message: String) -> Problem {
    Problem::new(Reason::SecretUnusable, message)
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("identities", &self.identities)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn secret(keys: &[(&str, &str)]) -> Secret {
        let data = keys
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        Secret {
            data: Some(data.collect()),
            ..Secret::default()
        }
    }

    #[test]
    fn a_secret_may_hold_several_identities_and_what_is_wrong_is_said_without_it() {
        let good = secret(&[(AUTH, "digest:a:1\nb:2\n")]);
        assert_eq!(identities(&good, "team").unwrap().len(), 2);
        for (keys, expected) in [
            (
                &[("other", "x")][..],
                "key auth of Secret team is missing: write digest:",
            ),
            (&[(AUTH, "hunter2")], "key auth of Secret team must hold digest:"),
            (&[(AUTH, "a:1\nhunter2")], "one in each line"),
        ] {
            let problem = identities(&secret(keys), "team").unwrap_err();
            assert_eq!(problem.reason, Reason::SecretUnusable);
            assert!(problem.message.contains(expected), "{}", problem.message);
            assert!(!problem.message.contains("hunter2"), "{}", problem.message);
        }
    }

    #[test]
    fn the_certificate_that_is_missing_is_named() {
        assert!(tls(&secret(&[(CA, "PEM")]), "tls").is_ok());
        for (keys, expected) in [
            (&[][..], "key ca.crt of Secret tls is missing"),
            (
                &[(CA, "x"), (CERTIFICATE, "x")],
                "key tls.key of Secret tls is missing: tls.crt needs it",
            ),
            (
                &[(CA, "x"), (KEY, "x")],
                "key tls.crt of Secret tls is missing: tls.key needs it",
            ),
        ] {
            let Err(problem) = tls(&secret(keys), "tls") else {
                panic!("{keys:?}")
            };
            assert_eq!(problem.reason, Reason::SecretUnusable);
            assert!(problem.message.contains(expected), "{}", problem.message);
        }
    }

    #[test]
    fn certificates_that_cannot_be_used_are_traced_to_their_key() {
        let source = Source {
            namespace: "shop".into(),
            connect: "tcp+tls://zk:2281".into(),
            credentials: "team".into(),
            tls: Some("certificates".into()),
        };
        let access = Access {
            identities: vec![Identity::generate("shop")],
            tls: Some(tls(&secret(&[(CA, "no PEM")]), "certificates").unwrap()),
        };
        let problem = access.zookeeper(&source).unwrap_err();
        assert_eq!(problem.reason, Reason::SecretUnusable);
        assert!(
            problem.message.starts_with("key ca.crt of Secret certificates: "),
            "{}",
            problem.message
        );
    }
}
