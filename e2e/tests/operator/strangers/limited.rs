//! An operator with an ensemble of its own and a few objects, and with the memory limit of the chart.

use std::fs;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_product::beside::{Launch, Operator};
use lockkeeper_testbed::{Config, Ensemble};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::hostile::Hostile;
use super::objects::Objects;

/// The memory limit of the chart, in bytes.
pub const LIMIT: u64 = 256 << 20;

/// Generous: the machine may be busy.
pub const BOUND: Duration = Duration::from_secs(120);

/// An operator with an ensemble of its own and a few objects.
pub struct Limited {
    operator: Operator,
    pub objects: Objects,
    pub ensemble: Ensemble,
    /// Peak memory of the operator and of one process of a session, in KiB.
    pub peaks: [Arc<AtomicU64>; 2],
    _folder: tempfile::TempDir,
}

impl Limited {
    pub async fn start(more: &[&str]) -> Self {
        let ensemble = tokio::task::spawn_blocking(|| {
            let config = Config {
                servers: 1,
                loopback: true,
                ..Config::default()
            };
            Ensemble::start(config).expect("the server starts")
        });
        let ensemble = ensemble.await.unwrap();
        let objects = Objects::start().await;
        objects.put(
            "/api/v1/namespaces/shop/secrets/team",
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": { "auth": "dGVhbTpzZWNyZXQ=" } }),
        );
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("auth"), "digest:operator:password\n").unwrap();
        fs::write(at("kubeconfig"), objects.kubeconfig().to_string()).unwrap();
        let options = [
            "--connect",
            &ensemble.connect_string(),
            "--tick-time",
            "1s",
            "--session-timeout",
            "15s",
            "--webhook-certificates",
            folder.path().to_str().unwrap(),
        ];
        let operator = Operator::spawn(&Launch {
            name: "operator",
            host: ensemble.observer(),
            directory: folder.path(),
            kubeconfig: &at("kubeconfig"),
            auth: &at("auth"),
            options: &[&options, more].concat(),
            memory: Some(LIMIT),
        })
        .unwrap();
        let peaks = <[Arc<AtomicU64>; 2]>::default();
        tokio::spawn(watch_memory(
            operator.process.pid().as_raw_nonzero().get(),
            peaks.clone(),
        ));
        Self {
            operator,
            objects,
            ensemble,
            peaks,
            _folder: folder,
        }
    }

    /// Makes a lock, `NAMESPACE/NAME` or one of `shop`, which names this server or none.
    pub fn lock(&self, name: &str, server: Option<&Hostile>) {
        let spec = match server {
            None => json!({}),
            Some(server) => json!({ "zookeeper": {
                "connect": server.address.to_string(), "tickTime": "2s", "credentialsSecret": { "name": "team" },
            } }),
        };
        let object = json!({ "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock", "metadata": {}, "spec": spec });
        self.objects.put(&path(name), object);
    }

    /// Waits until a lock satisfies a condition; panics with the exit status if the operator ends.
    pub async fn wait_for(&mut self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = path(name);
        let waiting = async {
            loop {
                let object = timeout(Duration::from_millis(200), self.objects.wait_for(&path, &wanted)).await;
                if let Ok(object) = object {
                    return object;
                }
                if let Some(status) = self.has_ended() {
                    panic!(
                        "the operator has ended ({status}) before {name} {what}:\n{}",
                        tail(&self.operator.log())
                    );
                }
            }
        };
        let found = timeout(BOUND, waiting).await;
        found.unwrap_or_else(|_| {
            panic!(
                "{name} not in time: {what}\n{:#}\n{}",
                self.objects.get(&path)["status"],
                tail(&self.operator.log())
            )
        })
    }

    /// How the operator ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.operator.process.wait(Duration::ZERO).unwrap()
    }

    pub async fn wait_until_ready(&mut self, name: &str) {
        self.wait_for(name, "is provided", |lock| condition(lock, "Ready").0 == "True")
            .await;
    }
}

pub fn path(name: &str) -> String {
    let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
    format!("/apis/lockkeeper.io/v1alpha1/namespaces/{namespace}/distributedlocks/{name}")
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Status, reason and message.
pub fn condition<'a>(lock: &'a Value, kind: &str) -> (&'a str, &'a str, &'a str) {
    let conditions = lock["status"]["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == kind);
    let text = |field: &str| found.and_then(|one| one[field].as_str()).unwrap_or_default();
    (text("status"), text("reason"), text("message"))
}

/// Records the peak memory of the process and of each of its children (proc_pid_status(5), VmHWM).
async fn watch_memory(id: i32, [own, childrens]: [Arc<AtomicU64>; 2]) {
    let note = |id: i32, peak: &AtomicU64| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib = line.trim().trim_end_matches(" kB").parse().ok()?;
        peak.fetch_max(kib, Ordering::Relaxed);
        Some(())
    };
    while note(id, &own).is_some() {
        let threads = fs::read_dir(format!("/proc/{id}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                note(child, &childrens);
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
