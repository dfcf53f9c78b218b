//! Authorities, and certificates that they sign.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as PEM.
pub struct Certificate {
    /// The certificate.
    pub chain: String,
    pub key: String,
}

impl Authority {
    /// A new authority of this common name.
    ///
    /// # Panics
    /// When no key can be made.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Its own certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate of this common name for a server at `addresses`, or for a client if there are none.
    ///
    /// # Panics
    /// When an address is invalid.
    pub fn sign(&self, name: &str, addresses: &[String]) -> Certificate {
        let mut params = CertificateParams::new(addresses).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Certificate {
            chain: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Writes a file and returns its path.
///
/// # Panics
/// When it cannot.
pub fn write(directory: &Path, name: &str, content: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path
}
