//! Silent connections without end to the operator's port for probes and metrics. Every pod of a cluster reaches it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::process::Command;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_product::beside::{Launch, Operator};
use lockkeeper_testbed::certificates::{Authority, write};
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::faults::{Flood, Probed, probe};
use lockkeeper_testbed::{Config, Ensemble, Host};
use serde_json::json;
use tokio::task::spawn_blocking;

use super::limited::{BOUND, LIMIT, condition, path};
use super::objects::Objects;

/// Connections a second of each of four hosts: 1,100 together, since some fail.
const OF_EACH: u32 = 275;

/// How long it lasts.
const LENGTH: Duration = Duration::from_secs(10);

/// Enough to take all places of the server (256) anew each second. A busy machine may not get to more.
const LEAST: u64 = 256 * LENGTH.as_secs();

/// A kubelet acts after this many failures in a row (`failureThreshold`, default 3). This test shares its machine with
/// others, which may take the second in which an answer is due.
const FAILURE_THRESHOLD: usize = 3;

/// How long a slow client takes for its request: longer than the 256 ms after which such a flood has taken each place
/// anew, and less than the 2 s that the server gives everybody.
const SLOW: Duration = Duration::from_millis(700);

/// Slow clients, one after the other.
const SLOW_CLIENTS: usize = 8;
/// So many of them are answered at least. When this busy machine stops the operator for some tenths of a second, it accepts a
/// burst that takes all places within the time that each newcomer has.
const ANSWERED: usize = SLOW_CLIENTS / 2;

/// Asks as a client whose machine is busy between the connection and the request.
fn ask_slowly(host: &Host, to: SocketAddrV4) -> io::Result<String> {
    host.run(|| {
        let mut stream = TcpStream::connect_timeout(&to.into(), BOUND)?;
        stream.set_read_timeout(Some(BOUND))?;
        std::thread::sleep(SLOW);
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })?
}

/// Lets a running operator run before the tests beside it, by a real-time policy (sched(7)): in a cluster it has a share of
/// its own, and such a flood keeps a third of a core busy. A nice value would not do: the kernel shares time out between
/// sessions first (autogroups), of which a cluster has dozens. Without the right to do so, it has what it gets.
fn goes_first(operator: &Operator) {
    let pid = operator.process.pid().to_string();
    let _ = Command::new("chrt")
        .args(["--all-tasks", "--rr", "--pid", "1", &pid])
        .status();
}

#[test]
fn in_a_flood_of_silent_connections_from_elsewhere_a_kubelets_probe_is_answered_and_the_operator_goes_on() {
    let config = Config {
        servers: 1,
        ..Config::default()
    };
    let ensemble = Ensemble::start(config).expect("the server starts");
    if let Err(reason) = ensemble.network().can_cut() {
        return lockkeeper_skip::skip(format!("hosts on the loopback device have one address: {reason}"));
    }
    let host = |name: &str| ensemble.client(name).unwrap();
    let (node, kubelet) = (host("node"), host("kubelet"));
    let strangers = [1, 2, 3, 4].map(|number| host(&format!("stranger-{number}")));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("auth"), "digest:operator:password\n").unwrap();
    // It is not ready without one.
    let certificate = Authority::new("webhook").sign("webhook", &["localhost".to_owned()]);
    write(folder.path(), "tls.crt", &certificate.chain);
    write(folder.path(), "tls.key", &certificate.key);
    block_on(&node, || async {
        let objects = Objects::start().await;
        fs::write(at("kubeconfig"), objects.kubeconfig().to_string()).unwrap();
        let mut operator = Operator::start(&Launch {
            name: "operator",
            host: &node,
            directory: folder.path(),
            kubeconfig: &at("kubeconfig"),
            auth: &at("auth"),
            options: &[
                "--connect",
                &ensemble.connect_string(),
                "--tick-time",
                "1s",
                "--session-timeout",
                "15s",
                "--webhook-certificates",
                folder.path().to_str().unwrap(),
            ],
            memory: Some(LIMIT),
        })
        .await;
        goes_first(&operator);
        let port = operator.pages.address();

        let begun = BootInstant::now();
        let floods = strangers.each_ref().map(|host| Flood::begin(host, port, OF_EACH));
        let probing = {
            let kubelet = kubelet.clone();
            spawn_blocking(move || probe(&kubelet, port, "/readyz", LENGTH).unwrap())
        };
        let asking = {
            let prometheus = host("prometheus");
            spawn_blocking(move || [(); SLOW_CLIENTS].map(|()| ask_slowly(&prometheus, port)))
        };
        objects.put(
            &path("report"),
            json!({ "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock", "metadata": {}, "spec": {} }),
        );
        let is_ready = |lock: &serde_json::Value| condition(lock, "Ready").0 == "True";
        let path = path("report");
        let provided = tokio::time::timeout(BOUND, objects.wait_for(&path, is_ready)).await;
        assert!(provided.is_ok(), "{}", operator.log());
        let provided = BootInstant::now() - begun;
        let (probed, asked) = (probing.await.unwrap(), asking.await.unwrap());
        let opened: u64 = floods.iter().map(Flood::opened).sum();
        drop(floods);

        let Probed {
            answered,
            failed,
            in_a_row,
            late,
        } = probed;
        println!(
            "{opened} connections; {} probes answered, within {:?} at most, {} failed, {late} do not count; a lock \
             was provided after {provided:?}",
            answered.len(),
            answered.iter().max(),
            failed.len(),
        );
        assert!(opened >= LEAST, "{opened} connections are no flood");
        assert!(!answered.is_empty());
        assert!(in_a_row < FAILURE_THRESHOLD, "{in_a_row} in a row: {failed:?}");
        let is_answered =
            |answer: &&io::Result<String>| answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
        let patient = asked.iter().filter(is_answered).count();
        println!("{patient} of {SLOW_CLIENTS} slow clients were answered");
        assert!(patient >= ANSWERED, "{asked:?}");
        assert!(operator.process.is_running(), "{}", operator.log());
    })
    .unwrap();
}
