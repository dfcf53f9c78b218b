//! The proxy to the API server: HTTP on this machine, and from there as the operator's client would connect.

use std::sync::Arc;

use futures_util::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use lockkeeper_product::beside::Environment;
use lockkeeper_product::beside::account::client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::{Fate, Late, State, admit, line_of};

type AnyBody = UnsyncBoxBody<Bytes, kube::Error>;

/// The answer got lost.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct Lost;

pub(super) async fn serve(
    environment: &Environment,
    state: Arc<watch::Sender<State>>,
    late: Arc<Late>,
) -> (AbortHandle, String) {
    let client = client(environment.kubeconfig()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        // The connections end with this task.
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (client, state) = (client.clone(), Arc::clone(&state));
            let late = Arc::clone(&late);
            connections.spawn(async move {
                let service = service_fn(|request| pass(&client, &state, &late, request));
                // An error of either side ends the connection.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (task.abort_handle(), server)
}

async fn pass(
    client: &Client,
    state: &watch::Sender<State>,
    late: &Late,
    request: Request<Incoming>,
) -> Result<Response<AnyBody>, Lost> {
    let (mut head, body) = request.into_parts();
    let path = head
        .uri
        .path_and_query()
        .map_or_else(String::new, ToString::to_string);
    let is_asked = head.method != Method::GET;
    // A dry run writes nothing.
    let is_write = is_asked && !path.contains("dryRun=");
    let fate = match is_write {
        true => admit(state, &path, head.method.as_str()).await,
        false => Fate::Passes,
    };
    let what = format!("{} {path}", head.method);
    let is_watch = path.contains("watch=true");
    head.headers.remove(hyper::header::HOST);
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    let answer = client
        .send(Request::from_parts(head, Body::from(body)))
        .await
        .map_err(|_| Lost)?;
    if is_asked {
        state.send_modify(|state| {
            if let Some((_, line)) = line_of(state, &path) {
                line.answers.push(format!("{} {what}", answer.status().as_u16()));
            }
        });
    }
    match fate {
        Fate::LosesItsAnswer => Err(Lost),
        Fate::Passes | Fate::Waits if is_watch => Ok(in_time(answer, late, path)),
        Fate::Passes | Fate::Waits => Ok(answer.map(BodyExt::boxed_unsync)),
    }
}

/// The answer to the watch of `path`, whose parts wait while that is late.
fn in_time(answer: Response<Body>, late: &Late, path: String) -> Response<AnyBody> {
    let late = late.subscribe();
    answer.map(|body| {
        let parts = BodyStream::new(body).then(move |part| {
            let (mut late, path) = (late.clone(), path.clone());
            async move {
                // An error says that the gate is gone, and so is the operator.
                let _ = late
                    .wait_for(|late| late.is_none_or(|late| !path.contains(late)))
                    .await;
                part
            }
        });
        StreamBody::new(parts).boxed_unsync()
    })
}
