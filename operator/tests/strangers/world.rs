//! An operator with an ensemble of its own and a few objects, and with no more memory than the chart gives it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_e2e::{Config, Ensemble};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::hostile::Hostile;
use crate::objects::Objects;

/// What the chart gives the operator, in bytes.
pub const LIMIT: u64 = 256 << 20;

/// Generous: the machine may have other work to do.
pub const BOUND: Duration = Duration::from_secs(120);

/// An operator with an ensemble of its own and a few objects.
pub struct World {
    pub operator: Child,
    pub objects: Objects,
    pub ensemble: Ensemble,
    /// Most memory of the operator and of one process of a session, in KiB.
    pub peaks: [Arc<AtomicU64>; 2],
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl World {
    pub async fn start(options: &[&str]) -> Self {
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
        // Whose UID says which cluster this is.
        let cluster =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system" } });
        objects.put("/api/v1/namespaces/kube-system", cluster);
        objects.put(
            "/api/v1/namespaces/shop/secrets/team",
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": { "auth": "dGVhbTpzZWNyZXQ=" } }),
        );
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("auth"), "digest:operator:password\n").unwrap();
        let cluster = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [],
            "clusters": [{ "name": "x", "cluster": { "server": format!("http://{}", objects.address) } }],
            "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "" } }] });
        fs::write(at("kubeconfig"), cluster.to_string()).unwrap();
        let operator = Command::new(env!("CARGO_BIN_EXE_lockkeeper-operator"))
            .args([
                "--connect",
                &ensemble.connect_string(),
                "--tick-time",
                "1s",
                "--session-timeout",
                "15s",
            ])
            .args([
                "--admin-listen",
                "127.0.0.1:0",
                "--webhook-listen",
                "127.0.0.1:0",
                "--auth-file",
            ])
            .arg(at("auth"))
            .arg("--webhook-certificates")
            .arg(folder.path())
            .args(options)
            .env("KUBECONFIG", at("kubeconfig"))
            .stdin(Stdio::null())
            .stderr(File::create(at("log")).unwrap())
            .spawn()
            .unwrap();
        let limit = Rlimit {
            current: Some(LIMIT),
            maximum: Some(LIMIT),
        };
        prlimit(Some(Pid::from_child(&operator)), Resource::Data, limit).unwrap();
        let peaks = <[Arc<AtomicU64>; 2]>::default();
        tokio::spawn(watch_memory(operator.id(), peaks.clone()));
        Self {
            operator,
            objects,
            ensemble,
            peaks,
            log: at("log"),
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

    /// Waits for a lock to say so; or tells how the operator ended.
    pub async fn wait_for(&mut self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = path(name);
        let waiting = async {
            loop {
                let object = timeout(Duration::from_millis(200), self.objects.wait_for(&path, &wanted)).await;
                if let Ok(object) = object {
                    return object;
                }
                if let Some(status) = self.operator.try_wait().unwrap() {
                    panic!(
                        "the operator has ended ({status}) before {name} {what}:\n{}",
                        tail(&self.log)
                    );
                }
            }
        };
        let found = timeout(BOUND, waiting).await;
        found.unwrap_or_else(|_| {
            panic!(
                "{name} not in time: {what}\n{:#}\n{}",
                self.objects.get(&path)["status"],
                tail(&self.log)
            )
        })
    }

    pub async fn wait_until_ready(&mut self, name: &str) {
        self.wait_for(name, "is provided", |lock| condition(lock, "Ready").0 == "True")
            .await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.operator.kill();
        let _ = self.operator.wait();
    }
}

pub fn path(name: &str) -> String {
    let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
    format!("/apis/lockkeeper.io/v1alpha1/namespaces/{namespace}/distributedlocks/{name}")
}

fn tail(log: &PathBuf) -> String {
    let log = fs::read_to_string(log).unwrap();
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

/// Notes the most memory that the process and each of its children ever had (proc_pid_status(5), VmHWM).
async fn watch_memory(id: u32, [own, childrens]: [Arc<AtomicU64>; 2]) {
    let note = |id: u32, peak: &AtomicU64| {
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
