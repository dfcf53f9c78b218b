use std::convert::Infallible;
use std::future::{Pending, Ready, pending, ready};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::join_all;
use hyper::{Request, Response};
use kube::Client;
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
    /// Questions that were asked.
    asked: Arc<AtomicUsize>,
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
        self.asked.fetch_add(1, Ordering::SeqCst);
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

/// An API server that does not answer.
struct Silent;

impl Service<Request<Body>> for Silent {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pending<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        pending()
    }
}

impl Server {
    fn nodes(&self) -> Nodes {
        Nodes::new(Client::new(self.clone(), "default"))
    }
}

/// For which an answer is shared.
const SECOND: Duration = Duration::from_secs(1);

/// The node, as a watch shows it.
fn on() -> Machine {
    Machine {
        uid: "m1".to_owned(),
        ..Machine::default()
    }
}

fn off() -> Machine {
    Machine {
        is_out_of_service: true,
        is_silent: true,
        ..on()
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
fn started(server: &Server) -> (Arc<Fencing>, Arc<WorkQueue>, JoinSet<()>) {
    let changes = Arc::<WorkQueue>::default();
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
    fencing.see("n1", Some(&off()));
    assert_eq!(changes.take().now_or_never(), Some(vec![key()]));
    assert_eq!(dead(&fencing, &nodes).await, (1, false));
    // The node is read again: the administrator may have taken the taint away.
    tokio::time::advance(SECOND).await;
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
    fencing.see("n1", Some(&off()));
    server.fails.store(true, Ordering::SeqCst);
    assert_eq!(dead(&fencing, &nodes).await, (0, true));
    server.fails.store(false, Ordering::SeqCst);
    tokio::time::advance(SECOND).await;
    assert_eq!(dead(&fencing, &nodes).await, (1, false));
}

#[tokio::test(start_paused = true)]
async fn contenders_that_came_under_a_taint_are_safe_from_it_and_not_from_the_next_one() {
    let server = Server::default();
    let (nodes, (fencing, _changes, _tasks)) = (server.nodes(), started(&server));
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.note(&key(), &queue(), &pods());
    settle().await;
    fencing.see("n1", Some(&off()));
    assert_eq!(dead(&fencing, &nodes).await, (0, false));
    server.is_tainted.store(false, Ordering::SeqCst);
    fencing.see("n1", Some(&on()));
    settle().await;
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.see("n1", Some(&off()));
    assert_eq!(dead(&fencing, &nodes).await, (1, false));
}

#[tokio::test(start_paused = true)]
async fn of_many_locks_with_contenders_on_a_machine_that_goes_one_asks_and_all_take_the_answer() {
    let server = Server::default();
    let (nodes, (fencing, _changes, _tasks)) = (server.nodes(), started(&server));
    fencing.note(&key(), &queue(), &pods());
    settle().await;
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.see("n1", Some(&off()));
    let before = server.asked.load(Ordering::SeqCst);
    let all = join_all((0..1_000).map(|_| dead(&fencing, &nodes))).await;
    assert!(all.iter().all(|one| *one == (1, false)));
    assert_eq!(server.asked.load(Ordering::SeqCst), before + 1);
}

#[tokio::test(start_paused = true)]
async fn no_question_is_asked_for_contenders_that_cannot_be_dead() {
    let server = Server::default();
    let (nodes, (fencing, changes, _tasks)) = (server.nodes(), started(&server));
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.note(&key(), &queue(), &pods());
    settle().await;
    fencing.see("n1", Some(&off()));
    let asked = || server.asked.load(Ordering::SeqCst);
    let before = asked();
    assert_eq!(dead(&fencing, &nodes).await, (0, false));
    assert_eq!(asked(), before, "nobody vouched for it");
    server.is_tainted.store(false, Ordering::SeqCst);
    fencing.see("n1", Some(&on()));
    settle().await;
    let before = asked();
    let heard = Machine {
        is_silent: false,
        ..off()
    };
    fencing.see("n1", Some(&heard));
    let again = Machine {
        uid: "m2".to_owned(),
        ..off()
    };
    assert_eq!(dead(&fencing, &nodes).await, (0, false));
    fencing.see("n1", Some(&again));
    assert_eq!(dead(&fencing, &nodes).await, (0, false));
    assert_eq!(asked(), before, "its kubelet is heard of, or it is another node");
    drop(changes.take().now_or_never());
    server.is_tainted.store(true, Ordering::SeqCst);
    fencing.see("n1", Some(&off()));
    assert_eq!(changes.take().now_or_never(), Some(vec![key()]));
    assert_eq!(dead(&fencing, &nodes).await, (1, false));
    // The same once more is no news.
    fencing.see("n1", Some(&off()));
    assert_eq!(changes.take().now_or_never(), None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_older_than_the_voucher_of_a_contender_does_not_count_for_it() {
    let server = Server::default();
    let (nodes, fencing) = (server.nodes(), Fencing::new(Arc::default()));
    let vouch = || async {
        let keys = vec![key()];
        let asked = fencing.known().berths.unvouched("n1", &keys);
        fencing.vouch_on(&nodes, "n1".into(), keys, asked).await
    };
    fencing.note(&key(), &queue(), &pods());
    assert!(vouch().await.is_empty());
    fencing.see("n1", Some(&off()));
    server.is_tainted.store(true, Ordering::SeqCst);
    assert_eq!(dead(&fencing, &nodes).await, (1, false));
    // Within the same second the machine is used again, and a contender comes. The watch has not shown that yet.
    server.is_tainted.store(false, Ordering::SeqCst);
    fencing.note(&key(), &Queue::of(true, []), &pods());
    fencing.note(&key(), &queue(), &pods());
    assert!(vouch().await.is_empty());
    assert_eq!(dead(&fencing, &nodes).await, (0, false));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_read_slowly_hold_up_no_lock_for_long() {
    let nodes = Nodes::new(Client::new(Silent, "default"));
    let fencing = Fencing::new(Arc::default());
    let contender = |at: i64| {
        let data = format!(
            r#"{{"state":"held","pod":{{"namespace":"shop","name":"p{at}","uid":"u","node":"n{at}"}}}}"#
        );
        Contender::read(
            format!("_c_{at}-lock-{at:010}"),
            FencingToken(at),
            true,
            data.as_bytes(),
        )
    };
    let pod = |at: i64| {
        let pod = json!({
            "metadata": {"name": format!("p{at}"), "uid": "u", "creationTimestamp": "2026-01-02T00:00:00Z"},
            "spec": {"nodeName": format!("n{at}"), "containers": []},
        });
        let facts = PodFacts::of(&serde_json::from_value(pod).unwrap());
        (format!("p{at}"), facts)
    };
    let queue = Queue::of(true, (1..=100).map(contender));
    fencing.note(&key(), &queue, &(1..=100).map(pod).collect());
    for at in 1..=100 {
        let (node, born) = (format!("n{at}"), Some("2026-01-01T00:00:00Z".parse().unwrap()));
        let mut known = fencing.known();
        let asked = known.berths.unvouched(&node, &[key()]);
        let machine = Machine {
            created: born,
            ..on()
        };
        known.berths.vouch(&asked, &machine);
        drop(known);
        fencing.see(&node, Some(&off()));
    }
    let begin = tokio::time::Instant::now();
    let participants = queue.participants(Mode::Exclusive);
    let (suspects, is_late) = fencing.suspects(&nodes, &key(), &participants).await;
    assert_eq!((suspects.len(), is_late, begin.elapsed()), (100, true, PATIENCE));
    assert!(suspects.iter().all(|one| !one.is_dead()));
}
