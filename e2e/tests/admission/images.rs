//! Images in the cluster's registry, made by hand through its HTTP API (OCI distribution and image
//! specifications), and gates in front of it.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use lockkeeper_testbed::Host;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::webhooks::REGISTRY;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// An image, or one of a platform in an index.
pub struct Pushed {
    pub digest: String,
    size: usize,
}

/// Pushes an image without files, whose configuration describes this process.
pub fn push(host: &Host, name: &str, tag: &str, process: &Value) -> Pushed {
    let configuration = json!({
        "architecture": "amd64", "os": "linux", "config": process,
        "rootfs": { "type": "layers", "diff_ids": [] },
    })
    .to_string();
    let config = put_blob(host, name, configuration.as_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "layers": [],
        "config": { "mediaType": CONFIG, "digest": config, "size": configuration.len() },
    });
    put_manifest(host, name, tag, MANIFEST, &manifest)
}

/// Pushes an index of existing images, by their architecture, with an attestation as builders add it.
pub fn push_index(host: &Host, name: &str, tag: &str, images: &[(&str, &Pushed)]) -> Pushed {
    let entry = |architecture: &str, os: &str, image: &Pushed| {
        json!({ "mediaType": MANIFEST, "digest": image.digest, "size": image.size,
                "platform": { "architecture": architecture, "os": os } })
    };
    let attestation = push(host, name, "attestation", &json!({}));
    let mut entries: Vec<_> = images
        .iter()
        .map(|(architecture, image)| entry(architecture, "linux", image))
        .collect();
    entries.push(entry("unknown", "unknown", &attestation));
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries });
    put_manifest(host, name, tag, INDEX, &index)
}

fn put_manifest(host: &Host, name: &str, tag: &str, media_type: &str, manifest: &Value) -> Pushed {
    let body = manifest.to_string();
    let path = format!("/v2/{name}/manifests/{tag}");
    let answer = ask(
        host,
        "PUT",
        &path,
        &[("content-type", media_type)],
        body.as_bytes(),
    );
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    Pushed {
        digest: digest_of(body.as_bytes()),
        size: body.len(),
    }
}

fn put_blob(host: &Host, name: &str, blob: &[u8]) -> String {
    let digest = digest_of(blob);
    let begun = ask(host, "POST", &format!("/v2/{name}/blobs/uploads/"), &[], b"");
    assert_eq!(begun.status, 202, "{}", String::from_utf8_lossy(&begun.body));
    let place = begun.header("location").unwrap();
    let path = place.split_once(REGISTRY).map_or(place, |(_, path)| path);
    let separator = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{separator}digest={digest}");
    let content = [("content-type", "application/octet-stream")];
    let answer = ask(host, "PUT", &path, &content, blob);
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    digest
}

fn digest_of(bytes: &[u8]) -> String {
    let sum = digest::digest(&digest::SHA256, bytes);
    let hex: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(one, _)| one.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Sends a request to the registry, each over its own connection.
fn ask(host: &Host, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let registry: SocketAddrV4 = REGISTRY.parse().unwrap();
    let mut stream = host.connect(registry, Duration::from_secs(5)).unwrap();
    // HTTP/1.0: the answer ends with the connection, and is in one piece.
    let mut request = format!(
        "{method} {path} HTTP/1.0\r\nhost: {REGISTRY}\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut whole = Vec::new();
    stream.read_to_end(&mut whole).unwrap();
    let end = whole.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&whole[..end]).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.to_owned()))
    });
    Answer {
        status,
        headers: headers.collect(),
        body: whole[end + 4..].to_vec(),
    }
}

/// A proxy in front of the registry: it requires a password, records requests, and can be broken.
pub struct Gate {
    pub name: String,
    state: Arc<State>,
    behaviour: watch::Sender<Behaviour>,
}

/// How a gate treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It forwards the request.
    Open,
    /// It does not answer.
    Hangs,
    /// It breaks the connection.
    Broken,
}

struct State {
    host: Host,
    /// The required header `authorization`.
    authorization: Option<String>,
    seen: Mutex<Vec<String>>,
}

impl Gate {
    /// Opens it on a listener of [`crate::webhooks::Webhooks::gate`], for the runtime of the caller.
    pub fn open(host: &Host, listener: TcpListener, password: Option<&str>) -> Self {
        listener.set_nonblocking(true).unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let (behaviour, follows) = watch::channel(Behaviour::Open);
        let state = Arc::new(State {
            host: host.clone(),
            authorization: password.map(|password| format!("Basic {}", STANDARD.encode(password))),
            seen: Mutex::default(),
        });
        tokio::spawn({
            let state = Arc::clone(&state);
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let service = service_fn({
                        let (state, follows) = (Arc::clone(&state), follows.clone());
                        move |request| answer(Arc::clone(&state), follows.clone(), request)
                    });
                    // A client may close its connection at any time.
                    tokio::spawn(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service),
                    );
                }
            }
        });
        Self {
            name,
            state,
            behaviour,
        }
    }

    pub fn behave(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// Method and path of each request.
    pub fn seen(&self) -> Vec<String> {
        self.state
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn answer(
    state: Arc<State>,
    mut behaviour: watch::Receiver<Behaviour>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Broken> {
    let line = format!("{} {}", request.method(), request.uri().path());
    state.seen.lock().unwrap().push(line);
    // The sender is dropped at the end of the test.
    let _ = behaviour.wait_for(|now| *now != Behaviour::Hangs).await;
    if *behaviour.borrow() == Behaviour::Broken {
        return Err(Broken);
    }
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    if let Some(wanted) = &state.authorization
        && header("authorization") != Some(wanted)
    {
        let refused = Response::builder()
            .status(401)
            .header("www-authenticate", "Basic realm=\"gate\"")
            .body(Full::default());
        return Ok(refused.unwrap());
    }
    let accept = header("accept").unwrap_or("*/*").to_owned();
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let asked =
        tokio::task::spawn_blocking(move || ask(&state.host, &method, &path, &[("accept", &accept)], b""));
    let answer = asked.await.unwrap();
    let mut response = Response::builder().status(answer.status);
    for name in ["content-type", "content-length", "docker-content-digest"] {
        if let Some(value) = answer.header(name) {
            response = response.header(name, value);
        }
    }
    Ok(response.body(Full::from(answer.body)).unwrap())
}

/// Ends a connection without an answer.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken by the test")
    }
}

impl std::error::Error for Broken {}

impl From<Infallible> for Broken {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
