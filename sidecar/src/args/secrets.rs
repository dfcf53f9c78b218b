//! What must not be on a command line, and is read from files.

use std::fmt;
use std::path::Path;

use crate::exit::Failure;

/// Name and password for ZooKeeper's `digest` scheme. Its `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// The files of a TLS connection, all PEM.
#[cfg(feature = "tls")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Authorities to trust; there if any server speaks TLS.
    pub ca: Option<String>,
    /// What to show to the ensemble.
    pub identity: Option<ClientIdentity>,
}

/// A certificate and its key. Its `Debug` does not show the key.
#[cfg(feature = "tls")]
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

// === impl Credentials ===

impl Credentials {
    /// Reads `USER:PASSWORD` or `digest:USER:PASSWORD`; line ends at the end do not count.
    ///
    /// # Errors
    /// When the file cannot be read or holds something else. The message never shows the content.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let content = read(path, "credentials")?;
        Self::parse(content.trim_end_matches(['\r', '\n']))
            .map_err(|problem| Failure::usage(format!("the credentials file {} {problem}", path.display())))
    }

    /// What ZooKeeper's `addauth digest` takes.
    pub fn digest_auth(&self) -> Vec<u8> {
        format!("{}:{}", self.user, self.password).into_bytes()
    }

    fn parse(content: &str) -> Result<Self, &'static str> {
        const RIGHT: &str = "must hold one line, USER:PASSWORD or digest:USER:PASSWORD";
        if content.contains(['\r', '\n']) {
            return Err(RIGHT);
        }
        let (user, password) = match content.strip_prefix("digest:") {
            Some(rest) => rest.split_once(':'),
            None => content.split_once(':'),
        }
        .ok_or(RIGHT)?;
        if user.is_empty() || password.is_empty() {
            return Err(RIGHT);
        }
        Ok(Self {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

// === impl Tls ===

#[cfg(feature = "tls")]
impl Tls {
    /// Reads what is given.
    ///
    /// # Errors
    /// When a file cannot be read or is not PEM, or when only one of certificate and key is given.
    pub fn read(ca: Option<&Path>, certificate: Option<&Path>, key: Option<&Path>) -> Result<Self, Failure> {
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientIdentity {
                certificate: read_pem(certificate, "certificate")?,
                key: read_pem(key, "key")?,
            }),
            (Some(_), None) => {
                return Err(Failure::usage(
                    "--tls-cert needs the key of the certificate: add --tls-key",
                ));
            }
            (None, Some(_)) => return Err(Failure::usage("--tls-key needs its certificate: add --tls-cert")),
        };
        Ok(Self {
            ca: ca.map(|ca| read_pem(ca, "authorities")).transpose()?,
            identity,
        })
    }

    /// Whether no file was given.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(feature = "tls")]
impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tls")]
fn read_pem(path: &Path, what: &str) -> Result<String, Failure> {
    let content = read(path, what)?;
    if !content.contains("-----BEGIN ") {
        return Err(Failure::usage(format!(
            "the {what} file {} is not PEM: it has no line -----BEGIN …-----",
            path.display()
        )));
    }
    Ok(content)
}

fn read(path: &Path, what: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read the {what} file {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_credentials_are_read_and_a_password_may_contain_anything() {
        for (content, user, password) in [
            ("u:p", "u", "p"),
            ("digest:u:p", "u", "p"),
            ("u:p:q:", "u", "p:q:"),
            ("digest:u: p", "u", " p"),
        ] {
            let credentials = Credentials::parse(content).unwrap();
            assert_eq!(
                (&*credentials.user, &*credentials.password),
                (user, password),
                "{content}"
            );
        }
        let scratch = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(scratch.path(), "digest:u:p\r\n").unwrap();
        assert_eq!(Credentials::read(scratch.path()).unwrap().digest_auth(), b"u:p");
    }

    #[test]
    fn a_wrong_file_is_refused_and_nothing_of_a_password_is_shown() {
        for content in [
            "",
            "secret",
            "digest:secret",
            ":secret",
            "u:",
            "u:secret\nv:secret",
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), content).unwrap();
            let failure = Credentials::read(file.path()).unwrap_err().sentence;
            assert!(
                failure.ends_with("USER:PASSWORD or digest:USER:PASSWORD"),
                "{failure}"
            );
            assert!(failure.contains(&*file.path().to_string_lossy()), "{failure}");
            assert!(!failure.contains("secret"), "{failure}");
        }
        let shown = format!("{:?}", Credentials::parse("u:secret").unwrap());
        assert!(shown.contains('u') && !shown.contains("secret"), "{shown}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificate_and_key_come_together_and_are_pem() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let refused = |result: Result<Tls, Failure>| result.unwrap_err().sentence;
        assert!(refused(Tls::read(None, Some(path), None)).ends_with("add --tls-key"));
        assert!(refused(Tls::read(None, None, Some(path))).ends_with("add --tls-cert"));
        assert!(refused(Tls::read(Some(path), None, None)).contains("is not PEM"));
        std::fs::write(path, "-----BEGIN SECRET-----").unwrap();
        let tls = Tls::read(None, Some(path), Some(path)).unwrap();
        assert_eq!(tls.identity.unwrap().key, "-----BEGIN SECRET-----");
    }
}
