//! The parsers of untrusted input, for the crate `fuzz`. They are not in the released binary: see the feature
//! `fuzzing`.

use std::io::BufReader;
use std::path::Path;

use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Response, Uri};
use lockkeeper_daemon::http::Routes;
use lockkeeper_daemon::token::AppToken;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};

pub use crate::guard::fuzzing as guard;

use crate::client::{self, Event, request};
use crate::guard::handed_to_keeper::RunId;
use crate::metrics::LockMetrics;
use crate::probes::health::Health;
use crate::view::{KeeperView, Snapshot};
use crate::{admin, socket};

/// Whether an environment is that of a part of a run.
pub fn is_part_of(run: u64, environment: &[u8]) -> bool {
    RunId(run).is_in(environment)
}

pub fn socket_routes(served: socket::Served) -> impl Routes {
    socket::routes(served)
}

/// The token in the paths of [`admin_routes`].
pub const APP_TOKEN: &str = "Zm9vYmFyYmF6cXV4cXV1eA";

pub fn admin_routes(
    view: KeeperView,
    health: Health,
    metrics: LockMetrics,
    registry: Registry,
) -> impl Routes {
    let token = AppToken::parse(APP_TOKEN).ok();
    admin::routes(view, health, token, metrics, registry)
}

/// Status and body of a keeper's answer.
pub fn keeper_answer(answer: &[u8]) -> Option<(u16, Option<String>)> {
    let reply = request::read_head(BufReader::new(answer)).ok()??;
    Some((reply.status, reply.body(Path::new("/socket")).ok()))
}

pub fn keeper_failure(answer: &[u8]) -> Option<String> {
    let reply = request::read_head(BufReader::new(answer)).ok()??;
    Some(reply.into_failure(Path::new("/socket")).sentence)
}

/// Shows each state of the lock in a stream of events.
pub fn keeper_events(stream: &[u8], mut visit: impl FnMut(&Snapshot)) {
    let mut stream = BufReader::new(stream);
    while let Some(event) = client::next(&mut stream) {
        if let Event::Lock(Ok(snapshot)) = event {
            visit(&snapshot);
        }
    }
}

/// The status in the answer of a gRPC health service.
///
/// # Errors
/// When there is none.
pub async fn grpc_status(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<u64, String> {
    crate::probes::grpc::call(stream, "127.0.0.1:1", "app").await
}

/// The answer to a probe by HTTP, without its body.
///
/// # Errors
/// When there is none.
pub async fn probe_answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Response<()>, String> {
    use crate::probes::http;
    let request = http::request(&Uri::from_static("http://127.0.0.1:1/healthz"), &HeaderMap::new())
        .map_err(|problem| problem.to_string())?;
    let answer = http::exchange(stream, request).await;
    answer
        .map(|answer| answer.map(drop))
        .map_err(|problem| problem.to_string())
}

pub fn redirect(from: &Uri, location: &HeaderValue) -> Option<Uri> {
    crate::probes::http::target(from, Some(location))
}
