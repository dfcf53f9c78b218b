//! What must not be on a command line, and is read from files.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// Names and passwords for ZooKeeper's `digest` scheme. Its `Debug` shows none of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    file: PathBuf,
    identities: Vec<String>,
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
    /// Reads `USER:PASSWORD` or `digest:USER:PASSWORD`, one identity in each line: all of them count.
    ///
    /// # Errors
    /// When the file cannot be read or holds something else. The message never shows the content.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let content = read(path, "credentials")?;
        let identities = Self::parse(&content).map_err(|problem| {
            Failure::usage(format!("the credentials file {} {problem}", path.display()))
        })?;
        Ok(Self {
            file: path.to_owned(),
            identities,
        })
    }

    /// The same file, read anew.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_again(&self) -> Result<Self, Failure> {
        Self::read(&self.file)
    }

    /// What ZooKeeper's `addauth digest` takes, for each identity.
    pub fn identities(&self) -> &[String] {
        &self.identities
    }

    pub(crate) fn parse(content: &str) -> Result<Vec<String>, &'static str> {
        const RIGHT: &str = "must hold USER:PASSWORD or digest:USER:PASSWORD, one in each line";
        let identity = |line: &str| {
            let identity = line.strip_prefix("digest:").unwrap_or(line);
            let (user, password) = identity.split_once(':').ok_or(RIGHT)?;
            let is_whole = !user.is_empty() && !password.is_empty();
            is_whole.then(|| identity.to_owned()).ok_or(RIGHT)
        };
        let content = content.trim_end_matches(['\r', '\n']);
        content
            .lines()
            .map(identity)
            .chain(content.is_empty().then_some(Err(RIGHT)))
            .collect()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("file", &self.file)
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
    fn each_line_is_an_identity_in_one_of_two_forms_and_a_password_may_contain_anything() {
        for (content, identities) in [
            ("u:p", &["u:p"][..]),
            ("digest:u:p", &["u:p"]),
            ("u:p:q:", &["u:p:q:"]),
            ("digest:u: p", &["u: p"]),
            ("digest:u.2:new\nu.1:old\n", &["u.2:new", "u.1:old"]),
        ] {
            assert_eq!(Credentials::parse(content).unwrap(), identities, "{content}");
        }
        let scratch = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(scratch.path(), "digest:u:p\r\nv:w\r\n").unwrap();
        let credentials = Credentials::read(scratch.path()).unwrap();
        assert_eq!(credentials.identities(), ["u:p", "v:w"]);
        std::fs::write(scratch.path(), "v:w").unwrap();
        assert_eq!(credentials.read_again().unwrap().identities(), ["v:w"]);
    }

    #[test]
    fn a_wrong_file_is_refused_and_nothing_of_a_password_is_shown() {
        for content in [
            "",
            "\n",
            "secret",
            "digest:secret",
            ":secret",
            "u:",
            "u:secret\nsecret",
            "u:secret\n\nv:secret",
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), content).unwrap();
            let failure = Credentials::read(file.path()).unwrap_err().sentence;
            assert!(failure.ends_with("one in each line"), "{failure}");
            assert!(failure.contains(&*file.path().to_string_lossy()), "{failure}");
            assert!(!failure.contains("secret"), "{failure}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "u:secret").unwrap();
        let shown = format!("{:?}", Credentials::read(file.path()).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
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
