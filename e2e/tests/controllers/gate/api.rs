//! The proxy to the API server: HTTP on this machine, and from there as the operator's client would connect.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use lockkeeper_product::beside::World;
use lockkeeper_product::beside::account::client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::{Fate, State, admit, line_of};

/// The answer got lost.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct Lost;

pub(super) async fn serve(world: &World, state: Arc<watch::Sender<State>>) -> (AbortHandle, String) {
    let client = client(world.kubeconfig()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        // The connections end with this task.
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (client, state) = (client.clone(), Arc::clone(&state));
            connections.spawn(async move {
                let service = service_fn(|request| pass(&client, &state, request));
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
    request: Request<Incoming>,
) -> Result<Response<Body>, Lost> {
    let (mut head, body) = request.into_parts();
    let path = head
        .uri
        .path_and_query()
        .map_or_else(String::new, ToString::to_string);
    // A dry run writes nothing.
    let is_write = head.method != Method::GET && !path.contains("dryRun=");
    let fate = match is_write {
        true => admit(state, &path, head.method.as_str()).await,
        false => Fate::Passes,
    };
    let what = format!("{} {path}", head.method);
    head.headers.remove(hyper::header::HOST);
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    let answer = client
        .send(Request::from_parts(head, Body::from(body)))
        .await
        .map_err(|_| Lost)?;
    if is_write {
        state.send_modify(|state| {
            if let Some((_, line)) = line_of(state, &path) {
                line.answers.push(format!("{} {what}", answer.status().as_u16()));
            }
        });
    }
    match fate {
        Fate::LosesItsAnswer => Err(Lost),
        Fate::Passes | Fate::Waits => Ok(answer),
    }
}
