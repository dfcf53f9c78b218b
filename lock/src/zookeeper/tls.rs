//! TLS diagnosis beside the client: finds out why TLS fails.
//!
//! `zookeeper-client` makes its own TLS connections and does not report why one failed. So this module checks the files
//! before the client gets them. If a server cannot be used, it connects with the same configuration to find out why.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_client as zk;

use super::address::ServerAddress;

/// The longest answer to a four-letter word; `conf` has some hundred bytes.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Which part of the TLS settings cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTls {
    /// The authorities that sign the servers' certificates.
    #[error("the authorities cannot be used: {0}")]
    Authorities(String),
    /// The client's certificate.
    #[error("the client's certificate cannot be used: {0}")]
    Certificate(String),
    /// The key of the client's certificate.
    #[error("the key of the client's certificate cannot be used: {0}")]
    Key(String),
    /// A server's name, which its certificate is to be checked against.
    #[error("the certificate of {0} could not be checked: its name is neither a DNS name nor an IP address")]
    Server(String),
}

/// Why no answer came from a server.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A retry may succeed.
    Passing(String),
    /// The server, or our settings, must be changed. The message puts it after the server's name.
    Lasting(String),
}

/// The TLS settings, for the client and for this module's own connections.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    options: zk::TlsOptions,
    config: Arc<ClientConfig>,
    has_identity: bool,
}

impl Tls {
    /// Everything is PEM; `identity` is a certificate chain and its key.
    pub(super) fn new(ca: &str, identity: Option<(&str, &str)>) -> Result<Self, InvalidTls> {
        let authorities = |error: zk::Error| InvalidTls::Authorities(error.to_string());
        let key = |error: zk::Error| InvalidTls::Key(error.to_string());
        let config = Arc::new(config(ca, identity)?);
        let mut options = zk::TlsOptions::new().with_pem_ca(ca).map_err(authorities)?;
        if let Some((chain, pem)) = identity {
            options = options.with_pem_identity(chain, pem).map_err(key)?;
        }
        Ok(Self {
            options,
            config,
            has_identity: identity.is_some(),
        })
    }

    /// The same for the client.
    pub(super) fn options(&self) -> zk::TlsOptions {
        self.options.clone()
    }

    /// Opens TLS over a connection to `server`.
    pub(super) async fn over(
        &self,
        server: &ServerAddress,
        stream: TcpStream,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = server_name(server).map_err(io::Error::other)?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.config));
        connector.connect(name, stream).await
    }

    /// Sends a four-letter word over a connection of its own; the answer ends when the server closes the connection. An
    /// empty answer counts as trouble: a server that does not accept us may report that only after the handshake (TLS
    /// 1.3), or not at all.
    pub(super) async fn ask(&self, server: &ServerAddress, word: &[u8]) -> Result<Vec<u8>, Trouble> {
        let name = server_name(server).map_err(|error| Trouble::Lasting(error.to_string()))?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), name)
            .map_err(|error| Trouble::Lasting(error.to_string()))?;
        // Sent after the handshake.
        tls.writer().write_all(word)?;
        let mut stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            send(&mut tls, &mut stream).await?;
            let length = stream.read(&mut chunk).await?;
            let mut received = &chunk[..length];
            while !received.is_empty() {
                tls.read_tls(&mut received)?;
                let state = match tls.process_new_packets() {
                    Ok(state) => state,
                    Err(error) => {
                        // Send the alert, so that the server's log has the reason too.
                        let _ = send(&mut tls, &mut stream).await;
                        return Err(self.trouble(error));
                    }
                };
                let mut plain = vec![0; state.plaintext_bytes_to_read()];
                tls.reader().read_exact(&mut plain)?;
                answer.append(&mut plain);
            }
            if length == 0 || answer.len() > LONGEST_ANSWER {
                break;
            }
        }
        if answer.is_empty() {
            let when = if tls.is_handshaking() { "during" } else { "after" };
            return Err(Trouble::Passing(format!(
                "closed the connection {when} the TLS handshake"
            )));
        }
        Ok(answer)
    }

    fn trouble(&self, error: rustls::Error) -> Trouble {
        use AlertDescription as Alert;
        match error {
            rustls::Error::InvalidCertificate(reason) => Trouble::Lasting(format!(
                "shows a certificate that is not accepted: {}",
                in_words(&reason)
            )),
            rustls::Error::AlertReceived(Alert::CertificateRequired | Alert::BadCertificate)
                if !self.has_identity =>
            {
                Trouble::Lasting("requires a client's certificate, and got none".to_owned())
            }
            rustls::Error::AlertReceived(
                alert @ (Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied),
            ) => Trouble::Lasting(format!(
                "does not accept the client's certificate (TLS alert {alert:?})"
            )),
            rustls::Error::AlertReceived(
                alert @ (Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity),
            ) => Trouble::Lasting(format!("ends the TLS handshake with the alert {alert:?}")),
            rustls::Error::InvalidMessage(_) => Trouble::Lasting("does not speak TLS".to_owned()),
            other => Trouble::Passing(format!("breaks the TLS connection off: {other}")),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Passing(error.to_string())
    }
}

/// The name to check a server's certificate against.
pub(super) fn server_name(server: &ServerAddress) -> Result<ServerName<'static>, InvalidTls> {
    ServerName::try_from(server.host.clone()).map_err(|_| InvalidTls::Server(server.to_string()))
}

/// The configuration that the client builds from the same PEM. Here each part is checked separately.
fn config(ca: &str, identity: Option<(&str, &str)>) -> Result<ClientConfig, InvalidTls> {
    let authorities = |reason: String| InvalidTls::Authorities(reason);
    let mut roots = RootCertStore::empty();
    for certificate in all::<CertificateDer<'static>>(ca).map_err(authorities)? {
        roots
            .add(certificate)
            .map_err(|error| authorities(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(authorities("there is no certificate".to_owned()));
    }
    let revoked = all::<CertificateRevocationListDer<'static>>(ca).map_err(authorities)?;
    let builder = ClientConfig::builder();
    let provider = Arc::clone(builder.crypto_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .with_crls(revoked)
        .build()
        .map_err(|error| authorities(error.to_string()))?;
    let builder = builder.with_webpki_verifier(verifier);
    let Some((chain, key)) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = all(chain).map_err(InvalidTls::Certificate)?;
    if chain.is_empty() {
        return Err(InvalidTls::Certificate("there is no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| {
        InvalidTls::Key(match error {
            pem::Error::NoItemsFound => "there is no private key".to_owned(),
            other => other.to_string(),
        })
    })?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                InvalidTls::Key("it is the key of another certificate".to_owned())
            }
            rustls::Error::InvalidCertificate(error) => InvalidTls::Certificate(in_words(&error)),
            other => InvalidTls::Key(other.to_string()),
        })
}

/// All items of one kind.
fn all<T: PemObject>(pem: &str) -> Result<Vec<T>, String> {
    T::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// Sends all pending TLS records.
async fn send(tls: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    let mut records = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut records)?;
    }
    stream.write_all(&records).await
}

fn in_words(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "it is not signed by one of the authorities".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::Revoked => "it is revoked".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            format!("it is for other names: {}", names.join(", "))
        }
        other => other.to_string(),
    }
}

/// `zk1` for `DnsName("zk1")`, the notation of the names of a certificate.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_matches(['"', ')'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// A certificate that signs itself, and its key.
    fn own(name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn refused(ca: &str, identity: Option<(&str, &str)>) -> InvalidTls {
        Tls::new(ca, identity).unwrap_err()
    }

    #[test]
    fn what_is_not_usable_pem_is_refused_with_the_part_that_it_is_in() {
        let (ca, key) = own("zk1");
        assert!(Tls::new(&ca, Some((&ca, &key))).is_ok());

        let cut_off = &ca[..ca.len() / 2];
        let no_der = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        for bad in ["", "no PEM", cut_off, no_der, &key] {
            let error = refused(bad, None);
            assert!(matches!(error, InvalidTls::Authorities(_)), "{bad}: {error:?}");
            assert!(error.to_string().starts_with("the authorities cannot be used: "));
        }
        for bad in ["", "no PEM", cut_off, no_der, &key] {
            let error = refused(&ca, Some((bad, &key)));
            assert!(matches!(error, InvalidTls::Certificate(_)), "{bad}: {error:?}");
        }
        for bad in ["", "no PEM", &key[..key.len() / 2], &ca] {
            let error = refused(&ca, Some((&ca, bad)));
            assert!(matches!(error, InvalidTls::Key(_)), "{bad}: {error:?}");
            assert!(!error.to_string().contains("-----"), "nothing of a key is shown");
        }
    }

    #[test]
    fn the_key_of_another_certificate_is_refused() {
        let (ca, _) = own("zk1");
        let (_, key) = own("zk2");
        let error = refused(&ca, Some((&ca, &key)));
        assert_eq!(
            error,
            InvalidTls::Key("it is the key of another certificate".to_owned())
        );
    }

    #[test]
    fn a_server_whose_name_no_certificate_can_be_for_is_refused() {
        let (ca, _) = own("zk1");
        let connect = "zk1,tcp+tls://[fe80::1%eth0]:2281"
            .parse::<super::super::ConnectString>()
            .unwrap();
        let zookeeper = super::super::ZooKeeper::new(connect, std::time::Duration::from_secs(4));
        let error = zookeeper.with_tls(&ca, None).unwrap_err();
        assert!(matches!(error, InvalidTls::Server(_)), "{error:?}");
    }
}
