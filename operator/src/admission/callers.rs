//! Which clients may send reviews.
//!
//! Every pod reaches the webhooks. Only a client certificate proves that a caller is an API server, and so that its
//! review is about a pod that is about to be created.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// The clients that may send reviews.
#[derive(Clone, Debug, Default)]
pub enum Callers {
    /// All clients that reach the port.
    #[default]
    Anybody,
    /// Clients that have a certificate with one of these names: a common name, or a DNS name.
    Certified(Arc<dyn ClientCertVerifier>),
}

#[derive(Debug)]
struct Named {
    issued: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl Callers {
    /// Those with a certificate of one of these names by one of these authorities (PEM).
    ///
    /// # Errors
    /// When there is no authority or no name, in a sentence.
    pub fn certified(authorities: &[u8], names: Vec<String>) -> Result<Self, String> {
        if names.is_empty() {
            return Err("a certificate of no name is accepted: name those of the API servers".to_owned());
        }
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            let authority = authority.map_err(|error| format!("it is not PEM: {error}"))?;
            roots
                .add(authority)
                .map_err(|error| format!("it has no authority in it: {error}"))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let issued = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| format!("it has no authority in it: {error}"))?;
        Ok(Self::Certified(Arc::new(Named { issued, names })))
    }

    /// Whether each of them has shown that it is an API server.
    pub fn are_known(&self) -> bool {
        matches!(self, Self::Certified(_))
    }
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.issued.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // First, so that nothing of a stranger's is parsed here.
        let verified = self.issued.verify_client_cert(certificate, intermediates, now)?;
        if names(certificate).iter().any(|name| self.names.contains(name)) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}

/// The common names and the DNS names in a certificate; none where it cannot be read.
pub(crate) fn names(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let common = certificate.subject().iter_common_name();
    let mut names: Vec<_> = common
        .filter_map(|name| Some(name.as_str().ok()?.to_owned()))
        .collect();
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        names.extend(
            alternatives
                .value
                .general_names
                .iter()
                .filter_map(|name| match name {
                    GeneralName::DNSName(name) => Some((*name).to_owned()),
                    _ => None,
                }),
        );
    }
    names
}
