//! gRPC's health protocol, against another implementation of HTTP/2.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use bytes::Bytes;

use super::{ask, run, serve};

/// Answers `Check` calls: the message, or header fields alone when there is none. Gives the port and
/// what was asked.
fn server(answer: Option<&'static [u8]>) -> (u16, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, asked) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for stream in listener.incoming() {
            let _ = runtime.block_on(serve_one(stream.unwrap(), answer, &tell));
        }
    });
    (port, asked)
}

async fn serve_one(
    stream: TcpStream,
    answer: Option<&'static [u8]>,
    tell: &mpsc::Sender<(String, Vec<u8>)>,
) -> Result<(), h2::Error> {
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        let tell = tell.clone();
        tokio::spawn(async move {
            let (head, mut body) = request.into_parts();
            let mut message = Vec::new();
            while let Some(data) = body.data().await {
                message.extend_from_slice(&data.unwrap());
            }
            assert_eq!(head.headers["content-type"], "application/grpc");
            assert_eq!(head.headers["te"], "trailers");
            tell.send((head.uri.path().to_owned(), message)).unwrap();
            let head = http::Response::builder().header("content-type", "application/grpc");
            match answer {
                None => {
                    // Trailers only: NOT_FOUND.
                    let head = head.header("grpc-status", "5").body(()).unwrap();
                    respond.send_response(head, true).unwrap();
                }
                Some(answer) => {
                    let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    body.send_data(Bytes::from_static(answer), false).unwrap();
                    let mut trailers = http::HeaderMap::new();
                    trailers.insert("grpc-status", "0".parse().unwrap());
                    body.send_trailers(trailers).unwrap();
                }
            }
        });
    }
    Ok(())
}

fn probe(port: u16, service: &str) -> (u16, String) {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(
        scratch.path(),
        &format!(r#"{{"readiness":{{"grpc":{{"port":{port},"service":"{service}"}},"timeoutSeconds":20}}}}"#),
    );
    run(&served, 1);
    ask(&served, "readiness")
}

#[test]
fn a_service_that_serves_is_ready_and_is_asked_for_by_its_name() {
    let long = "x".repeat(300);
    for service in ["", "shop.Orders", long.as_str()] {
        let (port, asked) = server(Some(b"\0\0\0\0\x02\x08\x01"));
        assert_eq!(probe(port, service).0, 200);
        let (path, message) = asked.recv().unwrap();
        assert_eq!(path, "/grpc.health.v1.Health/Check");
        assert!(message.ends_with(service.as_bytes()));
        // Compressed or not, length, field 1 of the wire type "length-delimited".
        let field = match service.len() {
            0 => vec![],
            11 => vec![10, 11],
            _ => vec![10, 0xac, 2],
        };
        let length = u32::try_from(field.len() + service.len()).unwrap().to_be_bytes();
        assert_eq!(message[..5], [&[0][..], &length].concat());
        assert_eq!(message[5..][..field.len()], field);
    }
}

#[test]
fn a_service_that_does_not_serve_is_not_ready() {
    for (answer, why) in [
        (Some(&b"\0\0\0\0\x02\x08\x02"[..]), "NOT_SERVING"),
        (Some(b"\0\0\0\0\0"), "UNKNOWN"),
        (Some(b"\0\0\0\0\x02\x08\x03"), "SERVICE_UNKNOWN"),
        (Some(b"\x01\0\0\0\x02\x08\x01"), "none of a health service"),
        (Some(b"\0\0\0\0\x02\x08"), "none of a health service"),
        (None, "does not know the service"),
    ] {
        let (port, _asked) = server(answer);
        let (status, said) = probe(port, "a");
        assert_eq!(status, 503, "{answer:?}");
        assert!(said.contains(why), "{answer:?}: {said}");
    }
}

#[test]
fn what_does_not_speak_http_2_is_not_ready() {
    let application = super::application::Application::start("200 OK");
    let (status, said) = probe(application.port, "");
    assert_eq!(status, 503);
    assert!(said.contains("no answer of a gRPC health service"), "{said}");
}
