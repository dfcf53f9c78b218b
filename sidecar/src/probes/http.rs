//! `httpGet`: success is any status from 200 to 399. Redirects are followed on the same host only, and
//! certificates are not verified, as by a kubelet.

use std::fmt;
use std::io;
use std::pin::pin;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// As the kubelet, and Go's HTTP client.
const MOST_REDIRECTS: usize = 10;

/// Applications tell probes from users by the first word; a kubelet's second is its version.
const AGENT: &str = concat!("kube-probe/lockkeeper-", env!("CARGO_PKG_VERSION"));

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    uri: Uri,
    headers: HeaderMap,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Problem {
    sentence: String,
    /// No process listens.
    pub(super) is_refused: bool,
}

/// The answer, or why there is none.
pub(crate) type Answered = Result<Response<hyper::body::Incoming>, Problem>;

// === impl HttpGet ===

impl HttpGet {
    /// `path` may have a query. Kubernetes writes schemes in capitals.
    ///
    /// # Errors
    /// What is wrong, to be read after a subject.
    pub(crate) fn new(
        scheme: &str,
        host: &str,
        port: u16,
        path: &str,
        headers: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let scheme = match scheme.to_ascii_uppercase().as_str() {
            "" | "HTTP" => "http",
            "HTTPS" if cfg!(feature = "tls") => "https",
            "HTTPS" => return Err("wants HTTPS, which this binary was built without".to_owned()),
            _ => {
                return Err(format!(
                    "has the scheme {scheme}, which is neither HTTP nor HTTPS"
                ));
            }
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        let host = if host.contains(':') && !host.starts_with('[') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let uri: Uri = format!("{scheme}://{host}:{port}{slash}{path}")
            .parse()
            .map_err(|error| format!("cannot ask {host}:{port} for {path}: {error}"))?;
        let mut map = HeaderMap::new();
        map.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        map.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let mut given = HeaderMap::new();
        for (name, value) in headers {
            match (HeaderName::try_from(&name), HeaderValue::try_from(&value)) {
                (Ok(name), Ok(value)) => {
                    map.remove(&name);
                    given.append(name, value);
                }
                _ => {
                    return Err(format!(
                        "has the header {name} with a name or value that HTTP cannot carry"
                    ));
                }
            }
        }
        map.extend(given);
        Ok(Self { uri, headers: map })
    }
}

/// Asks, and checks the answer.
pub(super) async fn check(get: &HttpGet) -> Result<(), String> {
    let answer = follow(get).await.map_err(|problem| problem.to_string())?;
    match answer.status().as_u16() {
        200..=399 => Ok(()),
        status => Err(format!("GET {} answered {status}", get.uri)),
    }
}

/// Asks. Every answer is success.
pub(super) async fn send(get: &HttpGet) -> Result<(), Problem> {
    follow(get).await.map(drop)
}

async fn follow(get: &HttpGet) -> Answered {
    let mut uri = get.uri.clone();
    for _ in 0..=MOST_REDIRECTS {
        let answer = ask(&uri, &get.headers).await?;
        if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(answer);
        }
        match target(&uri, answer.headers().get(LOCATION)) {
            // A redirect to another host is not followed.
            Some(next) if next.host() != get.uri.host() => return Ok(answer),
            Some(next) => uri = next,
            None => return Ok(answer),
        }
    }
    Err(Problem::new(format!(
        "GET {} was redirected more than {MOST_REDIRECTS} times",
        get.uri
    )))
}

/// The target of a redirect; `None` if it is invalid.
pub(crate) fn target(from: &Uri, location: Option<&HeaderValue>) -> Option<Uri> {
    let location = location?.to_str().ok()?;
    if location.starts_with("http://") || location.starts_with("https://") {
        return location.parse().ok();
    }
    let path = match location.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => {
            return format!("{}:{location}", from.scheme_str()?).parse().ok();
        }
        Some(_) => location.to_owned(),
        None => format!("{}/{location}", from.path().rsplit_once('/')?.0),
    };
    format!("{}://{}{path}", from.scheme_str()?, from.authority()?)
        .parse()
        .ok()
}

async fn ask(uri: &Uri, headers: &HeaderMap) -> Answered {
    let host = uri.host().unwrap_or_default();
    let is_tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let address = (host.trim_start_matches('[').trim_end_matches(']'), port);
    let stream = TcpStream::connect(address).await.map_err(|error| Problem {
        sentence: format!("cannot connect to {host}:{port}: {error}"),
        is_refused: error.kind() == io::ErrorKind::ConnectionRefused,
    })?;
    let request = request(uri, headers)?;
    #[cfg(feature = "tls")]
    if is_tls {
        let stream = tls::handshake(address.0, stream)
            .await
            .map_err(|error| Problem::new(format!("TLS with {host}:{port} failed: {error}")))?;
        return exchange(stream, request).await;
    }
    exchange(stream, request).await
}

pub(crate) fn request(uri: &Uri, headers: &HeaderMap) -> Result<Request<Empty<Bytes>>, Problem> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path)
        .body(Empty::new())
        .map_err(|error| Problem::new(error.to_string()))?;
    *request.headers_mut() = headers.clone();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if let (false, Ok(host)) = (headers.contains_key(HOST), HeaderValue::from_str(authority)) {
        request.headers_mut().insert(HOST, host);
    }
    request
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Answered {
    let broken = |error: hyper::Error| Problem::new(format!("no answer that HTTP knows: {error}"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let mut answer = pin!(sender.send_request(request));
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        answer = &mut answer => answer.map_err(broken),
        // The connection has ended: what it has read may be the whole answer.
        _ = &mut connection => answer.await.map_err(broken),
    }
}

// === impl Problem ===

impl Problem {
    fn new(sentence: String) -> Self {
        Self {
            sentence,
            is_refused: false,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

#[cfg(feature = "tls")]
mod tls;
