//! One operator for all tests of this process, in a cluster and beside an ensemble of its own.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use lockkeeper_crds::DistributedLock;
use lockkeeper_e2e::{Cluster, Ensemble, Process};
use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use lockkeeper_operator::identity::Identity;
use serde_json::json;
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[path = "space.rs"]
mod space;

pub use space::Space;

/// Generous: the machine may have other work to do.
pub const BOUND: Duration = Duration::from_secs(60);

/// Where the operator's ServiceAccount is.
pub const SYSTEM: &str = "lockkeeper-system";

pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/lockkeeper");
pub const CRD: &str = include_str!("../../../crds/distributedlock.yaml");

/// A cluster, an ensemble, and an operator.
pub struct World {
    pub cluster: &'static Cluster,
    pub ensemble: Ensemble,
    operators: std::sync::Mutex<Vec<Operator>>,
    kubeconfig: PathBuf,
    auth: PathBuf,
    certificates: PathBuf,
}

/// A replica.
pub struct Operator {
    pub process: Process,
    pub admin: u16,
    log: PathBuf,
}

/// A test's stay in the world, together with others or alone.
pub struct Visit {
    world: Arc<World>,
    _stay: Stay,
}

enum Stay {
    Together { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

static STAYS: RwLock<()> = RwLock::const_new(());

/// The world of all tests that run at the same time, with one replica; the last one of them ends it.
/// `None` where there can be no cluster.
pub async fn world() -> Option<Visit> {
    let _guard = STAYS.read().await;
    visit(Stay::Together { _guard }).await
}

/// The world without other tests: for what breaks it for a while.
pub async fn world_alone() -> Option<Visit> {
    let _guard = STAYS.write().await;
    visit(Stay::Alone { _guard }).await
}

async fn visit(stay: Stay) -> Option<Visit> {
    static SHARED: LazyLock<Mutex<Weak<World>>> = LazyLock::new(Mutex::default);
    let mut shared = SHARED.lock().await;
    let world = match shared.upgrade() {
        Some(running) => running,
        None => Arc::new(World::start(Cluster::shared()?).await),
    };
    *shared = Arc::downgrade(&world);
    Some(Visit { world, _stay: stay })
}

impl std::ops::Deref for Visit {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

/// Asks until there is an answer.
pub async fn eventually<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(BOUND, what, ask).await
}

/// The same for what takes long by itself.
pub async fn eventually_within<T>(bound: Duration, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    /// Shorter than anything that is waited for.
    const POLL: Duration = Duration::from_millis(20);
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(bound, asking)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"))
}

impl World {
    async fn start(cluster: &'static Cluster) -> Self {
        // As the operator's main does; several worlds may follow one another.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let ensemble = Ensemble::start(lockkeeper_e2e::Config {
            loopback: true,
            ..lockkeeper_e2e::Config::default()
        })
        .expect("the servers start");
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {SYSTEM}}}\n");
        let account = format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: lockkeeper, namespace: {SYSTEM}}}\n"
        );
        let rbac = rights(cluster);
        cluster
            .apply(&[CRD, &namespace, &account, &rbac].join("\n---\n"))
            .unwrap();
        let kubeconfig = kubeconfig(cluster, ensemble.directory());
        let auth = ensemble.directory().join("auth");
        fs::write(&auth, operator_identity().to_line()).unwrap();
        let certificates = certificates(ensemble.directory());
        let world = Self {
            cluster,
            ensemble,
            operators: std::sync::Mutex::default(),
            kubeconfig,
            auth,
            certificates,
        };
        world.put_operator(world.operator("operator-0").await);
        world
    }

    /// Starts another replica, and waits until it is ready.
    pub async fn operator(&self, name: &str) -> Operator {
        self.operator_of(name, &["--connect", &self.ensemble.connect_string()])
            .await
    }

    /// Puts an operator in the place of the one that runs, which may talk to another ensemble.
    pub async fn allow(&self, other: &Ensemble) {
        drop(self.take_operator());
        let (own, hosts) = (self.ensemble.connect_string(), other.connect_string());
        // And to one that is nowhere.
        let hosts = format!("{hosts},127.0.0.1:1");
        let sessions = ["--other-ensembles-sessions", "8"];
        let options = [&["--connect", &own, "--other-ensembles", &hosts][..], &sessions].concat();
        self.put_operator(self.operator_of("operator-allowed", &options).await);
    }

    /// Starts an operator that reaches its ensemble so.
    pub async fn operator_of(&self, name: &str, options: &[&str]) -> Operator {
        self.launch(name, &self.kubeconfig, options).await
    }

    /// As [`World::operator`], with another way to the API server and to the ensemble.
    pub async fn operator_by(&self, name: &str, kubeconfig: &Path, connect: &str) -> Operator {
        self.launch(name, kubeconfig, &["--connect", connect]).await
    }

    async fn launch(&self, name: &str, kubeconfig: &Path, options: &[&str]) -> Operator {
        let admin = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = admin.local_addr().unwrap().port();
        drop(admin);
        let log = self.ensemble.directory().join(format!("{name}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper-operator"));
        command
            .args(options)
            .arg("--auth-file")
            .arg(&self.auth)
            .args(["--tick-time", "1s", "--session-timeout", "8s"])
            .args(["--admin-listen", &format!("127.0.0.1:{port}")])
            .args(["--webhook-listen", "127.0.0.1:0", "--namespace", SYSTEM])
            .arg("--webhook-certificates")
            .arg(&self.certificates)
            .env("KUBECONFIG", kubeconfig)
            .stderr(File::create(&log).unwrap());
        let mut operator = Operator {
            process: self.ensemble.observer().spawn(name, command).unwrap(),
            admin: port,
            log,
        };
        eventually("the operator is ready", async || {
            assert!(operator.process.is_running(), "{}", operator.log());
            let answer = operator.ask("/readyz").await?;
            answer.starts_with("HTTP/1.1 200").then_some(())
        })
        .await;
        operator
    }

    /// Whether the shared replica says that it is ready.
    pub async fn is_ready(&self) -> bool {
        let port = self
            .operators
            .lock()
            .unwrap()
            .first()
            .map(|operator| operator.admin);
        let answer = ask(port.expect("there is one"), "/readyz").await;
        answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// Takes the shared replica away.
    pub fn take_operator(&self) -> Operator {
        self.operators.lock().unwrap().pop().expect("there is one")
    }

    /// Gives the world a replica, after it was without.
    pub fn put_operator(&self, operator: Operator) {
        self.operators.lock().unwrap().push(operator);
    }

    /// A client with all rights, for the runtime of the caller.
    pub async fn client(&self) -> Client {
        client(self.cluster.kubeconfig()).await
    }

    /// The operator's kubeconfig: the rights of the chart.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A connection to the ensemble with the operator's rights.
    pub async fn connection(&self) -> Onlooker {
        /// Longer than what tests do with one connection in a row.
        const SESSION: Duration = Duration::from_secs(20);
        ZooKeeper::new(self.ensemble.connect_string().parse().unwrap(), SESSION)
            .with_credentials(Credentials::Digest(operator_identity().digest_auth()))
            .onlooker(0, BOUND)
            .await
            .unwrap()
    }

    /// A namespace of a test's own, which goes with it.
    pub async fn namespace(&self, name: &str) -> Space {
        Space::made(self.client().await, name, json!({})).await
    }
}

/// A client by a kubeconfig, for the runtime of the caller.
pub async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// As in the chart: the operator's identity in the ensemble.
pub fn operator_identity() -> Identity {
    Identity::parse("digest:operator:secret").unwrap()
}

/// What the chart allows the operator, where its certificate is given.
fn rights(cluster: &Cluster) -> String {
    let helm = Command::new(cluster.program("helm").unwrap())
        .args(["template", "lockkeeper", CHART, "--namespace", SYSTEM])
        .args(["--show-only", "templates/rbac.yaml"])
        .args(["--show-only", "templates/webhook-rbac.yaml"])
        .args(["--show-only", "templates/policy-operator.yaml"])
        .args([
            "--set",
            "zookeeper.connect=zookeeper:2181,zookeeper.authSecret=given,webhook.certificates=certManager",
        ])
        .args(["--set", "zookeeper.otherEnsembles.hosts={zk.example.com}"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&helm.stderr);
    assert!(helm.status.success(), "{words}");
    String::from_utf8(helm.stdout).unwrap()
}

/// A folder with the certificate of the webhooks, whom nobody asks here.
fn certificates(directory: &Path) -> PathBuf {
    let folder = directory.join("certificates");
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("tls.crt"), issued.cert.pem()).unwrap();
    fs::write(folder.join("tls.key"), issued.signing_key.serialize_pem()).unwrap();
    folder
}

/// The administrator's, with the token of the operator's ServiceAccount in place of his own.
pub fn kubeconfig(cluster: &Cluster, directory: &Path) -> PathBuf {
    kubeconfig_of(cluster, directory, "lockkeeper")
}

/// The same with another ServiceAccount of that namespace.
pub fn kubeconfig_of(cluster: &Cluster, directory: &Path, account: &str) -> PathBuf {
    let token = cluster
        .kubectl(&[
            "create",
            "token",
            account,
            "--namespace",
            SYSTEM,
            "--duration",
            "2h",
        ])
        .unwrap();
    let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(kube::config::AuthInfo {
            token: Some(token.trim().to_owned().into()),
            ..kube::config::AuthInfo::default()
        });
    }
    let path = directory.join("kubeconfig");
    fs::write(&path, serde_json::to_vec(&json!(kubeconfig)).unwrap()).unwrap();
    path
}

impl Operator {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub async fn ask(&self, path: &str) -> Option<String> {
        ask(self.admin, path).await
    }

    pub async fn is_leading(&self) -> bool {
        let metrics = self.ask("/metrics").await.unwrap_or_default();
        metrics.contains("lockkeeper_operator_leading 1")
    }
}

/// Asks an operator by HTTP.
pub async fn ask(port: u16, path: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// Pods that hold a lock by its status.
pub fn holders(lock: &DistributedLock) -> Vec<String> {
    let status = lock.status.clone().unwrap_or_default();
    status.holders.into_iter().map(|holder| holder.pod).collect()
}

/// Pods that wait for a lock by its status.
pub fn waiting(lock: &DistributedLock) -> Vec<String> {
    let status = lock.status.clone().unwrap_or_default();
    status.queue.into_iter().map(|one| one.pod).collect()
}

/// What a condition says.
pub fn message(lock: &DistributedLock, kind: &str) -> String {
    let status = lock.status.clone().unwrap_or_default();
    let found = status.conditions.into_iter().find(|one| one.type_ == kind);
    found.map(|one| one.message).unwrap_or_default()
}

/// Status and reason of a condition.
pub fn condition(lock: &DistributedLock, kind: &str) -> (String, String) {
    let status = lock.status.clone().unwrap_or_default();
    let found = status.conditions.into_iter().find(|one| one.type_ == kind);
    found.map(|one| (one.status, one.reason)).unwrap_or_default()
}
