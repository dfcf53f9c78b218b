//! Options for TLS with the ensemble, and the files that they name.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use lockkeeper_lock::zookeeper::{InvalidTls, ZooKeeper};

use crate::exit::Failure;
use crate::file;

/// TLS settings for the ensemble. Users read the doc comments as help.
#[derive(Clone, Debug, Args)]
pub struct TlsArgs {
    /// Certificates (PEM) of the authorities that sign the ensemble's certificates
    #[arg(long, env = "LOCKKEEPER_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Own certificate (PEM) to show to the ensemble
    #[arg(long, env = "LOCKKEEPER_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Key (PEM) of the own certificate
    #[arg(long, env = "LOCKKEEPER_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

/// The files of a TLS connection, all PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Authorities to trust; required if any server uses TLS.
    pub ca: Option<String>,
    /// The certificate to show to the ensemble.
    pub identity: Option<ClientIdentity>,
}

/// A certificate and its key. Its `Debug` does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: String,
    pub key: String,
}

// === impl TlsArgs ===

impl TlsArgs {
    /// Reads the files. See [`Tls::read`].
    ///
    /// # Errors
    /// As [`Tls::read`].
    pub fn read(&self) -> Result<Tls, Failure> {
        Tls::read(
            self.tls_ca.as_deref(),
            self.tls_cert.as_deref(),
            self.tls_key.as_deref(),
        )
    }
}

// === impl Tls ===

impl Tls {
    /// Reads the given files.
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

    /// Applies the settings to these servers, if there are authorities to trust; otherwise the servers stay as they
    /// are.
    ///
    /// # Errors
    /// What cannot be used, and the option that it came from.
    pub fn apply(&self, zookeeper: ZooKeeper) -> Result<ZooKeeper, Failure> {
        let Some(ca) = &self.ca else {
            return Ok(zookeeper);
        };
        let own = self.identity.as_ref();
        let own = own.map(|own| (own.certificate.as_str(), own.key.as_str()));
        zookeeper.with_tls(ca, own).map_err(invalid)
    }

    /// Whether no file was given.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// Names the option that the file came from.
fn invalid(error: InvalidTls) -> Failure {
    let option = match error {
        InvalidTls::Authorities(_) => "--tls-ca",
        InvalidTls::Certificate(_) => "--tls-cert",
        InvalidTls::Key(_) => "--tls-key",
        InvalidTls::Server(_) => "--connect",
    };
    Failure::usage(format!("{option}: {error}"))
}

fn read_pem(path: &Path, what: &str) -> Result<String, Failure> {
    let content = file::read(path, what)?;
    if !content.contains("-----BEGIN ") {
        return Err(Failure::usage(format!(
            "the {what} file {} is not PEM: it has no line -----BEGIN …-----",
            path.display()
        )));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

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
