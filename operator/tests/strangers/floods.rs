//! Bodies and connections beyond every measure, sent to the real operator.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

use crate::tls::{issued, trusting};
use crate::webhook::NAME;

/// What the chart gives the operator, in KiB.
pub const LIMIT: u64 = 256 << 10;

/// More than the operator has connections. With the answer of each it would need three times its memory.
const CLIENTS: usize = 300;

/// An operator that reaches no ensemble, and maybe no API server, but answers reviews.
pub struct Operator {
    child: Child,
    webhook: SocketAddr,
    authorities: String,
    _folder: tempfile::TempDir,
}

impl Operator {
    async fn start() -> Self {
        Self::start_with("127.0.0.1:1").await
    }

    /// With an API server at this address, and no more memory than the chart gives it.
    pub async fn start_with(api: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let issued = issued(NAME, None);
        fs::write(at("tls.crt"), &issued.certificate).unwrap();
        fs::write(at("tls.key"), &issued.key).unwrap();
        fs::write(at("auth"), "digest:operator:password\n").unwrap();
        let cluster = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{ "name": "x", "cluster": { "server": format!("http://{api}") } }], "users": [],
            "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "" } }] });
        fs::write(at("kubeconfig"), cluster.to_string()).unwrap();
        let [admin, webhook] = [(); 2].map(|()| free_address());
        let child = Command::new(env!("CARGO_BIN_EXE_lockkeeper-operator"))
            .args(["--connect", "127.0.0.1:1", "--auth-file"])
            .arg(at("auth"))
            .args([
                "--admin-listen",
                &admin.to_string(),
                "--webhook-listen",
                &webhook.to_string(),
            ])
            .arg("--webhook-certificates")
            .arg(folder.path())
            .args(["--log", "error"])
            .env("KUBECONFIG", at("kubeconfig"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let limit = Rlimit {
            current: Some(LIMIT << 10),
            maximum: Some(LIMIT << 10),
        };
        prlimit(Some(Pid::from_child(&child)), Resource::Data, limit).unwrap();
        let operator = Self {
            child,
            webhook,
            authorities: issued.authorities,
            _folder: folder,
        };
        let end = Instant::now() + Duration::from_secs(30);
        while operator.ask(&review("{}")).await.is_err() {
            assert!(Instant::now() < end, "the operator does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        operator
    }

    /// The first line of the answer to a review.
    async fn ask(&self, body: &str) -> std::io::Result<String> {
        self.ask_at("/pods", body).await
    }

    /// The first line of the answer to a review at a path.
    pub async fn ask_at(&self, path: &str, body: &str) -> std::io::Result<String> {
        let stream = TcpStream::connect(self.webhook).await?;
        let connector = trusting(self.authorities.as_bytes());
        let mut stream = connector
            .connect(ServerName::try_from(NAME).unwrap(), stream)
            .await?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {NAME}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        // One that is refused is not read to its end.
        let _ = stream.write_all(body.as_bytes()).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        match answer.lines().next() {
            Some(line) => Ok(line.to_owned()),
            None => Err(read
                .err()
                .unwrap_or_else(|| std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// A connection over which a review was sent, and whose answer nobody reads; `None` if it was closed before.
    async fn send_and_never_read(&self, body: &str) -> Option<TlsStream<TcpStream>> {
        let sent = async {
            let socket = TcpSocket::new_v4().ok()?;
            socket.set_recv_buffer_size(4096).ok()?;
            let stream = socket.connect(self.webhook).await.ok()?;
            let connector = trusting(self.authorities.as_bytes());
            let name = ServerName::try_from(NAME).unwrap();
            let mut stream = connector.connect(name, stream).await.ok()?;
            let head = format!(
                "POST /pods HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(body.as_bytes()).await.ok()?;
            Some(stream)
        };
        timeout(Duration::from_secs(5), sent).await.ok().flatten()
    }

    pub fn is_alive(&self) -> bool {
        // One that has ended is there until its parent waits for it (proc_pid_status(5), State).
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        status
            .lines()
            .any(|line| line.starts_with("State:") && !line.contains('Z'))
    }

    /// The most memory that it ever had, in KiB (proc_pid_status(5), VmHWM).
    pub fn peak(&self) -> u64 {
        let status = fs::read_to_string(
            Path::new("/proc")
                .join(self.child.id().to_string())
                .join("status"),
        )
        .unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .expect("it runs");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn review(object: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","request":{{"uid":"u","kind":{{"kind":"Pod"}},"operation":"CREATE","object":{object}}}}}"#
    )
}

/// A list of so many times the same.
fn many(item: &str, count: usize) -> String {
    review(&format!(
        "{{\"x\":[{item}{}]}}",
        format!(",{item}").repeat(count - 1)
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_read_no_answer_do_not_cost_more_memory_than_the_operator_has() {
    let operator = Operator::start().await;
    // What is wrong is repeated in the answer, which is as long as the review.
    let wrong = "A".repeat(2_900_000);
    let object = json!({ "metadata": { "annotations": { "lockkeeper.io/lock": wrong } }, "spec": { "containers": [] } });
    let body = review(&object.to_string());
    let alone = operator.ask(&body).await.unwrap();
    assert!(alone.starts_with("HTTP/1.1 200"), "{alone}");
    let before = operator.peak();
    let mut open = Vec::new();
    for _ in 0..CLIENTS {
        // Each has room for little of its answer, and never reads.
        open.extend(operator.send_and_never_read(&body).await);
        assert!(
            operator.is_alive(),
            "it was ended after {} connections",
            open.len()
        );
    }
    println!(
        "{} connections; most memory: {before} KiB before, {} KiB after",
        open.len(),
        operator.peak()
    );
    assert!(open.len() > 3, "{} connections", open.len());
    assert!(operator.peak() < LIMIT, "{} KiB", operator.peak());
    let answered = timeout(Duration::from_secs(60), async {
        while !operator
            .ask(&review("{}"))
            .await
            .is_ok_and(|line| line.starts_with("HTTP/1.1 200"))
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(answered.await.is_ok(), "nobody else is answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_any_kind_sent_at_once_do_not_cost_more_memory_than_the_operator_has() {
    let operator = Operator::start().await;
    let before = operator.peak();
    // Numbers and objects take many times their length when they are read.
    let bodies = [
        many("1", 3_900_000),
        many("1", 1_500_000),
        many("{\"a\":1}", 380_000),
        many("1", 100_000),
        many("{\"a\":1}", 2_500),
        many(&format!("\"{}\"", "x".repeat(1000)), 3_000),
    ];
    let statuses = ["413", "413", "413", "200", "200", "200"];
    for (body, status) in bodies.iter().zip(statuses) {
        let alone = operator.ask(body).await.unwrap();
        assert_eq!(
            alone.split(' ').nth(1),
            Some(status),
            "{} bytes: {alone}",
            body.len()
        );
    }
    for body in &bodies {
        let asked = (0..24).map(|_| timeout(Duration::from_secs(60), operator.ask(body)));
        // Some are refused, and some lose their places.
        futures_util::future::join_all(asked).await;
    }
    let after = operator.peak();
    println!("most memory: {before} KiB before, {after} KiB after");
    assert!(after < LIMIT, "{after} KiB");
    assert!(
        operator
            .ask(&review("{}"))
            .await
            .unwrap()
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_is_answered_while_others_hold_connections_and_half_bodies() {
    let operator = Operator::start().await;
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(TcpStream::connect(operator.webhook).await.unwrap());
    }
    let connector = trusting(operator.authorities.as_bytes());
    let mut half = Vec::new();
    for _ in 0..40 {
        let stream = TcpStream::connect(operator.webhook).await.unwrap();
        let mut stream = connector
            .connect(ServerName::try_from(NAME).unwrap(), stream)
            .await
            .unwrap();
        let head = format!("POST /pods HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 3000000\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.unwrap();
        half.push(stream);
    }
    let asked = timeout(Duration::from_secs(5), operator.ask(&review("{}"))).await;
    assert!(
        asked
            .expect("in time for an API server")
            .unwrap()
            .starts_with("HTTP/1.1 200")
    );
    // The slow ones are told, or cut off.
    for mut stream in half {
        let mut answer = Vec::new();
        let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
        let _ = read.expect("it has ended");
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 503"),
            "{answer}"
        );
    }
}
