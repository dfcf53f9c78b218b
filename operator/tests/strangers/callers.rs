//! Callers that have to show a certificate.

use std::sync::Arc;

use hyper::StatusCode;
use lockkeeper_operator::admission::callers::Callers;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::authority::Authority;
use crate::tls::issued;
use crate::webhook::{NAME, Server, review};

/// A client with this certificate, which trusts the webhooks.
fn client(authorities: &str, own: Option<&(String, String)>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

/// The answer to a review, or what became of the connection.
async fn ask(server: &Server, connector: &TlsConnector) -> std::io::Result<String> {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).await?;
    let mut stream = connector
        .connect(ServerName::try_from(NAME).unwrap(), stream)
        .await?;
    let pod = json!({ "metadata": { "name": "app" }, "spec": { "containers": [{ "name": "app" }] } });
    let review = review("shop", "Pod", &pod);
    let head = format!(
        "POST /pods HTTP/1.1\r\nhost: {NAME}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        review.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(review.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn only_a_caller_with_the_certificate_of_an_api_server_is_answered() {
    let issued = issued(NAME, None);
    let (cluster, other) = (Authority::new("cluster"), Authority::new("other"));
    let names = vec!["kube-apiserver".to_owned(), "api.example".to_owned()];
    let callers = Callers::certified(cluster.pem.as_bytes(), names).unwrap();
    let server = Server::start_with(&issued, "http://127.0.0.1:1", &callers).await;
    let (by_name, by_dns) = (
        cluster.sign_client("kube-apiserver"),
        cluster.sign(&["api.example".to_owned()]),
    );
    for own in [by_name, by_dns] {
        let answer = ask(&server, &client(&issued.authorities, Some(&own)))
            .await
            .unwrap();
        let ok = format!("HTTP/1.1 {} ", StatusCode::OK.as_u16());
        assert!(
            answer.starts_with(&ok) && answer.contains("\"allowed\":true"),
            "{answer}"
        );
    }
    // A kubelet has a certificate of the same authority.
    let kubelet = cluster.sign_client("system:node:n1");
    let pretender = other.sign_client("kube-apiserver");
    for own in [None, Some(&kubelet), Some(&pretender)] {
        let refused = ask(&server, &client(&issued.authorities, own)).await;
        assert!(refused.is_err(), "{refused:?}");
    }
}

#[test]
fn a_file_without_authorities_and_a_list_without_names_are_refused() {
    let authority = Authority::new("cluster");
    for (file, names) in [("", vec!["x".to_owned()]), (authority.pem.as_str(), Vec::new())] {
        assert!(Callers::certified(file.as_bytes(), names).is_err());
    }
}
