use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use hyper::{Request, Response};
use kube::client::Body;
use lockkeeper_lock::{FencingToken, Mode};
use serde_json::json;
use tokio::task::JoinSet;
use tower_service::Service;

use super::*;
use crate::zookeeper::queues::picture::Contender;

/// An API server with one node, `n1`, that an administrator changes.
#[derive(Clone, Default)]
struct Server {
    is_tainted: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
}

impl Service<Request<Body>> for Server {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        assert_eq!(request.uri().path(), "/api/v1/nodes/n1");
        // With a resourceVersion the answer might be an old one.
        assert_eq!(request.uri().query().unwrap_or_default(), "");
        let is_tainted = self.is_tainted.load(Ordering::SeqCst);
        let fails = self.fails.load(Ordering::SeqCst);
        let taint = json!([{"key": machine::OUT_OF_SERVICE, "effect": "NoExecute"}]);
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "uid": "m1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"taints": if is_tainted { taint } else { json!([]) }},
            "status": {"conditions": [{"type": "Ready", "status": if is_tainted { "Unknown" } else { "True" }}]},
        });
        let answer = Response::builder().status(if fails { 500 } else { 200 });
        ready(Ok(answer
            .body(Body::from(node.to_string().into_bytes()))
            .unwrap()))
    }
}

impl Server {
    fn nodes(&self) -> Nodes {
        Nodes::new(Client::new(self.clone(), "default"))
    }
}

fn key() -> LockKey {
    LockKey::new("shop", "report")
}

fn queue() -> Queue {
    let data = br#"{"state":"held","pod":{"namespace":"shop","name":"a","uid":"u","node":"n1"}}"#;
    let name = "_c_a-lock-0000000001";
    Queue::of(true, [Contender::read(name, FencingToken(1), true, data)])
}

fn pods() -> BTreeMap<String, PodFacts> {
    let pod = json!({
        "metadata": {"name": "a", "uid": "u", "creationTimestamp": "2026-01-02T00:00:00Z"},
        "spec": {"nodeName": "n1", "containers": []},
    });
    let facts = PodFacts::of(&serde_json::from_value(pod).unwrap());
    [("a".to_owned(), facts)].into()
}

/// The dead contenders of the lock, and whether it is to be tried again.
async fn dead(fencing: &Fencing, nodes: &Nodes) -> (usize, bool) {
    let participants = queue().participants(Mode::Exclusive);
    let (suspects, is_late) = fencing.suspects(nodes, &key(), &participants).await;
    (suspects.iter().filter(|one| one.is_dead()).count(), is_late)
}

/// What is known, with its task; and the locks that have to be looked at.
fn started(server: &Server) -> (Arc<Fencing>, Arc<Changes>, JoinSet<()>) {
    let changes = Arc::<Changes>::default();
    let fencing = Arc::new(Fencing::new(Arc::clone(&changes)));
    let (mut tasks, nodes) = (JoinSet::new(), server.nodes());
    let known = Arc::clone(&fencing);
    tasks.spawn(async move { known.vouch(nodes).await });
    (fencing, changes, tasks)
}

/// Until all that has to be read was tried several times: the clock of these tests goes on when nothing else does.
async fn settle() {
    tokio::time::sleep(5 * PAUSE).await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_comes_after_a_contender_makes_its_lock_be_looked_at_and_the_contender_is_dead() {
    let server = Server::default();
    let (nodes, (fencing, changes, _tasks)) = (server.nodes(), started(&server));
    fencing.note(&key(), &queue(), &pods());
    settle().await;
    assert_eq!(changes.take().now_or_never(), None);
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.see("n1", true);
    assert_eq!(changes.take().now_or_never(), Some(vec![key()]));
    assert_eq!(dead(&fencing, &nodes).await, (1, false));
    // The node is read again each time: the administrator may have taken the taint away.
    server.is_tainted.store(false, Ordering::SeqCst);
    assert_eq!(dead(&fencing, &nodes).await, (0, false));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_read_condemns_nobody_and_is_tried_again() {
    let server = Server::default();
    let (nodes, (fencing, _changes, _tasks)) = (server.nodes(), started(&server));
    fencing.note(&key(), &queue(), &pods());
    server.fails.store(true, Ordering::SeqCst);
    settle().await;
    server.fails.store(false, Ordering::SeqCst);
    settle().await;
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.see("n1", true);
    server.fails.store(true, Ordering::SeqCst);
    assert_eq!(dead(&fencing, &nodes).await, (0, true));
    server.fails.store(false, Ordering::SeqCst);
    assert_eq!(dead(&fencing, &nodes).await, (1, false));
}

#[tokio::test(start_paused = true)]
async fn contenders_that_came_under_a_taint_are_safe_from_it_and_not_from_the_next_one() {
    let server = Server::default();
    let (nodes, (fencing, _changes, _tasks)) = (server.nodes(), started(&server));
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.note(&key(), &queue(), &pods());
    settle().await;
    fencing.see("n1", true);
    assert_eq!(dead(&fencing, &nodes).await, (0, false));
    server.is_tainted.store(false, Ordering::SeqCst);
    fencing.see("n1", false);
    settle().await;
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.see("n1", true);
    assert_eq!(dead(&fencing, &nodes).await, (1, false));
}
