//! An API server with more locks than are followed, and an operator that lists them, and lists them again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::body::{Bytes, Frame, Incoming};
use serde_json::json;
use tokio::time::timeout;

use crate::api::{Answer, Http, answer};
use crate::floods::{LIMIT, Operator};

/// More than the operator follows in all, in namespaces of more than it follows of one.
const COUNT: usize = 18_000;

/// Locks of one namespace.
const OF_NAMESPACE: usize = 12_000;

/// Generous: the machine may have other work to do.
const BOUND: Duration = Duration::from_secs(900);

/// A lock with as much as is kept of one. No two name the same ensemble.
fn lock(at: usize) -> String {
    let server = format!("{}.{}.example:2181", "a".repeat(63), "b".repeat(63));
    let connect = format!("{}/{at}", vec![server; 7].join(","));
    let metadata = json!({
        "name": format!("{at:063}"), "namespace": format!("evil-{}", at / OF_NAMESPACE), "uid": format!("{at:036}"),
        "resourceVersion": "5",
        // The youngest first: each of them is kept until an older one comes.
        "creationTimestamp": format!("2026-01-{:02}T00:00:00Z", 28 - at * 28 / COUNT),
        "annotations": { "lockkeeper.io/handoff": "p".repeat(300) },
        "finalizers": ["lockkeeper.io/queue"],
    });
    let secret = json!({ "name": "s".repeat(253) });
    let zookeeper =
        json!({ "connect": connect, "credentialsSecret": secret, "tlsSecret": secret, "tickTime": "2s" });
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "False", "reason": "EnsembleNotAllowed", "message": "m".repeat(300),
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 })
    };
    let conditions = ["Ready", "Held", "EnsembleReachable"].map(condition);
    json!({ "metadata": metadata, "spec": { "zookeeper": zookeeper }, "status": { "conditions": conditions } }).to_string()
}

/// A page, as JSON that is made while it is read.
fn page(from: usize, to: usize) -> Answer {
    let next = if to < COUNT { to.to_string() } else { String::new() };
    let metadata = json!({ "resourceVersion": "5", "continue": next });
    let head = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{metadata},"items":["#);
    let items = (from..to).flat_map(move |at| [lock(at), if at + 1 < to { "," } else { "" }.to_owned()]);
    let parts = std::iter::once(head).chain(items).chain(["]}".to_owned()]);
    stream_of(stream::iter(parts.map(|part| Ok(Frame::data(Bytes::from(part))))))
}

fn stream_of(
    frames: impl stream::Stream<Item = Result<Frame<Bytes>, std::convert::Infallible>> + Send + Sync + 'static,
) -> Answer {
    let mut answer = Answer::new(BodyExt::boxed(StreamBody::new(frames)));
    let json = "application/json".parse().unwrap();
    answer.headers_mut().insert("content-type", json);
    answer
}

async fn api() -> Http {
    let watches = AtomicUsize::new(0);
    Http::start(move |request: &Request<Incoming>| {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let number = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(key, value)| (key == name).then(|| value.parse::<usize>().unwrap()))
        };
        let is_of_locks = uri.path().ends_with("/distributedlocks");
        if query.contains("watch=true") {
            if is_of_locks && watches.fetch_add(1, Ordering::Relaxed) == 0 {
                let gone = json!({ "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "" });
                let event = format!("{}\n", json!({ "type": "ERROR", "object": gone }));
                return stream_of(stream::iter([Ok(Frame::data(Bytes::from(event)))]));
            }
            return stream_of(stream::pending());
        }
        if is_of_locks {
            let from = number("continue").unwrap_or(0);
            return page(from, COUNT.min(from + number("limit").unwrap_or(COUNT)));
        }
        let none = json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "5" }, "items": [] });
        answer(200, &[("content-type", "application/json")], none.to_string())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn more_locks_than_are_followed_do_not_cost_more_memory_than_the_operator_has() {
    let api = api().await;
    let operator = Operator::start_with(&api.name).await;
    let listed = async |times: usize| {
        loop {
            let seen = api.seen();
            let is_watch =
                |line: &&String| line.contains("/distributedlocks?") && line.contains("watch=true");
            // A list is followed when it was read to its end.
            if seen.iter().filter(is_watch).count() >= times {
                return operator.peak();
            }
            assert!(operator.is_alive(), "it has ended: {:#?}", seen.last());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let once = timeout(BOUND, listed(1)).await.expect("all locks are listed");
    let twice = timeout(BOUND, listed(2))
        .await
        .expect("all locks are listed again");
    println!("most memory: {once} KiB with all locks listed, {twice} KiB with all listed again");
    assert!(twice < LIMIT, "{twice} KiB");
}
