//! Probes over HTTPS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{ask, run, serve, status};

#[test]
fn a_certificate_that_nobody_signed_is_good_enough_for_a_probe() {
    let key = rcgen::generate_simple_self_signed(["elsewhere.example".to_owned()]).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            let mut request = [0; 4096];
            if stream.read(&mut request).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        }
    });
    let scratch = tempfile::tempdir().unwrap();
    let probe =
        |scheme: &str| format!(r#"{{"httpGet":{{"port":{port},"scheme":"{scheme}"}},"timeoutSeconds":20}}"#);
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"liveness":{},"readiness":{}}}"#,
            probe("HTTPS"),
            probe("HTTP")
        ),
    );
    run(&served, 1);
    let (status_of_https, why) = ask(&served, "liveness");
    assert_eq!(status_of_https, 200, "{why}");
    assert_eq!(
        status(&served, "readiness"),
        503,
        "it is not spoken to in the clear"
    );
}
