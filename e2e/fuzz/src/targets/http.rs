//! HTTP between keepers and their clients.

use std::cell::OnceCell;
use std::io::Cursor;
use std::time::Duration;

use lockkeeper_daemon::http::Routes;
use lockkeeper_lock::LockStatus;
use lockkeeper_sidecar::fuzzing;
use lockkeeper_sidecar::metrics::{self, LockMetrics};
use lockkeeper_sidecar::peer::Users;
use lockkeeper_sidecar::probes::AppProbes;
use lockkeeper_sidecar::probes::health::Health;
use lockkeeper_sidecar::socket::Served;
use lockkeeper_sidecar::view::{About, Guarded, KeeperView};
use tokio::sync::{mpsc, watch};

use super::texts;
use crate::Target;
use crate::bytes;

/// Serves an input, and returns the answer.
type Server = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// Longest head of a request, and the longest answer of a keeper, in bytes.
const HEAD: usize = 8 * 1024;
const ANSWER: usize = 64 * 1024;

thread_local! {
    static SERVERS: OnceCell<[Server; 2]> = const { OnceCell::new() };
}

/// Requests at the socket and at the port for probes.
pub(crate) const REQUESTS: Target = Target {
    name: "http-requests",
    longest: 12 * 1024,
    // The input once more, hyper's buffers for reading and writing (a head has 8 KiB at most), a hundred headers, and
    // an answer: the longest is that with the metrics.
    bound: |input| 2 * input.len() + 8 * HEAD + 2 * ANSWER,
    seeds: || {
        let mut seeds = texts([
            "GET /v1/lock HTTP/1.1\r\nHost: lock\r\n\r\n",
            "GET /v1/lock/events HTTP/1.0\r\n\r\n",
            "POST /v1/lock/release HTTP/1.1\r\nHost: lock\r\nContent-Length: 3\r\n\r\nabc",
            "GET /v1/lock/inside HTTP/1.0\r\n\r\n",
            "POST /v1/app/started/18446744073709551615 HTTP/1.0\r\n\r\n",
            "GET /v1/app/liveness HTTP/1.0\r\n\r\n",
            "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
            "HEAD /metrics HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET /app/Zm9vYmFyYmF6cXV4cXV1eA/readiness HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "GET http://[::1]:9808/%2e%2e/metrics?a#b HTTP/1.1\r\n a: b\r\n\r\n",
        ]);
        seeds.push(format!("GET /readyz HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101)).into_bytes());
        seeds.push(format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(HEAD)).into_bytes());
        seeds
    },
    words: &[
        "GET ",
        "POST ",
        "HTTP/1.1",
        "\r\n",
        "\r\n\r\n",
        "Host: ",
        "Content-Length: ",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "/v1/lock",
        "/v1/app/",
        "started/",
        "/metrics",
        "/app/Zm9vYmFyYmF6cXV4cXV1eA/liveness",
        "%00",
        "http://",
    ],
    run: |input| {
        SERVERS.with(|servers| {
            for server in servers.get_or_init(servers_of_a_keeper) {
                let answer = server(input);
                let status: Option<u16> = answer
                    .get(9..12)
                    .and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
                assert!(
                    answer.is_empty() || answer.starts_with(b"HTTP/1."),
                    "{}",
                    answer.escape_ascii()
                );
                assert!(answer.is_empty() || status.is_some_and(|status| status < 600 && status != 500));
            }
        });
    },
};

fn servers_of_a_keeper() -> [Server; 2] {
    let (status, watched) = watch::channel(LockStatus::new());
    let (guarded, guarded_now) = watch::channel(Guarded::default());
    let (app, app_now) = watch::channel(None);
    let view = KeeperView::new(watched, guarded_now, About::exclusive("/l"));
    let probes = AppProbes::parse(Some("{\"liveness\":{\"tcpSocket\":{\"port\":1}}}"), None).expect("probes");
    let health = Health::new(app_now, probes);
    let mut registry = metrics::registry(None);
    let counted = LockMetrics::register(&mut registry);
    metrics::register_view(view.clone(), &mut registry);
    let (commands, _) = mpsc::channel(1);
    // They live as long as the process, as in a keeper.
    std::mem::forget((status, guarded, app));
    let served = Served {
        view: view.clone(),
        health: health.clone(),
        commands,
        release_timeout: Duration::from_secs(1),
        users: Users::own(),
        tree: None,
    };
    [
        server(fuzzing::socket_routes(served)),
        server(fuzzing::admin_routes(view, health, counted, registry)),
    ]
}

fn server(routes: impl Routes) -> Server {
    Box::new(move |input| {
        // Streams of events end at once.
        let (_keep, stopping) = watch::channel(true);
        let mut answer = Vec::new();
        let stream = tokio::io::join(Cursor::new(input.to_vec()), &mut answer);
        bytes::run(lockkeeper_daemon::fuzzing::serve(
            stream,
            routes.clone(),
            stopping,
        ));
        answer
    })
}

/// The answers at a keeper's socket: whole answers, and streams of events.
pub(crate) const KEEPER_ANSWERS: Target = Target {
    name: "keeper-answers",
    longest: 16 * ANSWER,
    // A line, and a body, have 64 KiB at most; a text grows to twice its size, and is copied then. The error
    // message about it comes on top.
    bound: |_| 8 * ANSWER,
    seeds: || {
        let lock = "{\"lock\":\"/locks/report\",\"state\":\"Held\",\"access\":\"exclusive\",\"fencingToken\":4294967331,\
                    \"position\":0,\"remainingMillis\":11200,\"stopBudgetMillis\":3000,\"session\":\"0x1\"}";
        let mut seeds = texts([
            "HTTP/1.0 409 Conflict\r\n\r\n{\"error\":\"the lock is not held\"}",
            "HTTP/1.0 200 OK\r\n\r\n{\"inside\":true}",
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/1. 99999\r\n",
            "\r\nHTTP/1.1 200\r\n\r\n",
        ]);
        seeds.push(format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{lock}").into_bytes());
        seeds.push(format!(": a comment\n\ndata: {lock}\n\ndata: {{}}\n").into_bytes());
        seeds.push(format!("data: {}", "a".repeat(15 * ANSWER)).into_bytes());
        seeds
    },
    words: &[
        "HTTP/1.",
        " 200 ",
        "\r\n",
        "\r\n\r\n",
        "data: ",
        "{\"error\":\"",
        "\"state\":\"",
        "\n\n",
    ],
    run: |input| {
        if let Some((_, Some(body))) = fuzzing::keeper_answer(input) {
            assert!(body.len() <= ANSWER && body.len() < input.len());
        }
        if let Some(sentence) = fuzzing::keeper_failure(input) {
            assert!(sentence.len() <= ANSWER);
        }
        fuzzing::keeper_events(input, |snapshot| {
            let _ = snapshot.explain();
            assert!(!snapshot.is_held() || !snapshot.state.name().is_empty());
        });
    },
};
