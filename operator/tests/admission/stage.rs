//! What the chart puts into a cluster, and operators beside the API server that answer its questions.

use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use lockkeeper_e2e::{Cluster, Ensemble, Host};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::operator::Operator;
use crate::world::{CHART, CRD, SYSTEM, Space, eventually, kubeconfig, operator_identity};

/// Ports that stand before the registry, for tests to take: an operator learns at its start which
/// registries speak without TLS.
const GATES: usize = 8;

/// How long the API server waits for the webhooks: as long as it may, for a machine with much to do answers late. Who
/// tests the chart's own time applies the chart without it, alone.
pub const PATIENT: &str = "webhook.timeoutSeconds=30";

/// Whose the endpoints of the webhooks' Service are: not the controller's, which takes them from pods.
const MANAGER: &str = "lockkeeper-tests";

/// The registry of the cluster, as pods name it.
pub const REGISTRY: &str = "10.77.0.1:5000";

/// A cluster with the chart in it, and operators.
pub struct Stage {
    pub cluster: &'static Cluster,
    pub host: Host,
    // Ended before the ensemble.
    operators: Mutex<Vec<Operator>>,
    gates: Mutex<Vec<TcpListener>>,
    plain_http: String,
    zookeeper: SocketAddrV4,
    kubeconfig: PathBuf,
    ensemble: Ensemble,
}

/// What kubectl says.
pub struct Said {
    pub is_done: bool,
    pub output: String,
    /// Warnings and errors.
    pub words: String,
}

/// A test's stay, together with others or alone.
pub struct Visit {
    stage: Arc<Stage>,
    _stay: Stay,
}

enum Stay {
    Together { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

static STAYS: RwLock<()> = RwLock::const_new(());

/// The stage of all tests that run at the same time; the last one of them ends it. `None` where there can
/// be no cluster of ours.
pub async fn stage() -> Option<Visit> {
    let _guard = STAYS.read().await;
    visit(Stay::Together { _guard }).await
}

/// The stage without other tests: for what breaks it for a while.
pub async fn stage_alone() -> Option<Visit> {
    let _guard = STAYS.write().await;
    visit(Stay::Alone { _guard }).await
}

async fn visit(stay: Stay) -> Option<Visit> {
    static SHARED: LazyLock<tokio::sync::Mutex<Weak<Stage>>> = LazyLock::new(Default::default);
    let mut shared = SHARED.lock().await;
    let stage = match shared.upgrade() {
        Some(running) => running,
        None => Arc::new(Stage::start(env!("CARGO_BIN_EXE_lockkeeper-operator")).await?),
    };
    *shared = Arc::downgrade(&stage);
    Some(Visit { stage, _stay: stay })
}

impl std::ops::Deref for Visit {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

/// A test that fails shows what the operators said.
impl Drop for Visit {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        if let Ok(operators) = self.stage.operators.lock() {
            for operator in &*operators {
                println!("{} at {}:\n{}", operator.name, operator.webhook, operator.log());
            }
        }
    }
}

impl Stage {
    /// Applies the chart, starts one operator, and waits until the API server asks it.
    pub async fn start(program: &str) -> Option<Self> {
        let cluster = Cluster::shared()?;
        let host = match cluster.control_plane() {
            Ok(host) => host.clone(),
            Err(reason) => {
                println!("SKIPPED: {reason}");
                return None;
            }
        };
        // As the operator's main does; several stages may follow one another.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let ensemble = Ensemble::start(lockkeeper_e2e::Config {
            servers: 1,
            loopback: true,
            ..lockkeeper_e2e::Config::default()
        })
        .expect("the server starts");
        let zookeeper = cluster.lead_out(ensemble.address(0)).unwrap();
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {SYSTEM}}}\n");
        let parts = [
            "serviceaccount",
            "rbac",
            "webhook-rbac",
            "service",
            "webhook",
            "policy",
            "policy-kinds",
            "policy-operator",
            "policy-workloads",
        ];
        let chart = render(cluster, &parts, &[PATIENT]);
        cluster.apply(&[CRD, &namespace, &chart].join("\n---\n")).unwrap();
        // Of a stage before, whose operators are gone.
        let of_tests = format!("endpointslice.kubernetes.io/managed-by={MANAGER}");
        cluster
            .kubectl(&[
                "delete",
                "endpointslices",
                "--namespace",
                SYSTEM,
                "--selector",
                &of_tests,
            ])
            .unwrap();
        fs::write(ensemble.directory().join("auth"), operator_identity().to_line()).unwrap();
        let gates: Vec<_> = (0..GATES).map(|_| listen(&host)).collect();
        let plain_http = gates
            .iter()
            .map(|gate| gate.local_addr().unwrap().to_string())
            .fold(REGISTRY.to_owned(), |list, gate| format!("{list},{gate}"));
        let stage = Self {
            kubeconfig: kubeconfig(cluster, ensemble.directory()),
            cluster,
            host,
            operators: Mutex::default(),
            gates: Mutex::new(gates),
            plain_http,
            zookeeper,
            ensemble,
        };
        let operator = stage.operator(program, "operator-0", &[]).await;
        stage.put_operator(operator);
        stage.wait_until_injected().await;
        Some(stage)
    }

    /// Starts another replica, and waits until it is ready. [`Stage::put_operator`] makes the API server
    /// ask it.
    pub async fn operator(&self, program: &str, name: &str, arguments: &[&str]) -> Operator {
        let [admin, webhook] = [(); 2].map(|()| free_address(&self.host));
        let log = self.ensemble.directory().join(format!("{name}.log"));
        let mut command = Command::new(program);
        command
            .args(["--connect", &self.zookeeper.to_string()])
            .arg("--auth-file")
            .arg(self.ensemble.directory().join("auth"))
            .args(["--tick-time", "1s", "--session-timeout", "8s"])
            .args(["--admin-listen", &admin.to_string()])
            .args(["--webhook-listen", &webhook.to_string()])
            .args(["--namespace", SYSTEM, "--registry-plain-http", &self.plain_http])
            .arg("--client-ca")
            .arg(self.cluster.authority())
            .args(["--client-names", "kube-apiserver"])
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stderr(File::create(&log).unwrap());
        let mut operator = Operator {
            process: self.host.spawn(name, command).unwrap(),
            name: name.to_owned(),
            host: self.host.clone(),
            admin,
            webhook,
            log,
        };
        eventually("the operator is ready", async || {
            assert!(operator.process.is_running(), "{}", operator.log());
            operator.is_ready().then_some(())
        })
        .await;
        operator
    }

    /// Leads the Service of the chart to a replica too.
    pub fn put_operator(&self, operator: Operator) {
        let Operator { name, webhook, .. } = &operator;
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name, "namespace": SYSTEM,
                "labels": { "kubernetes.io/service-name": "lockkeeper-webhook",
                            "endpointslice.kubernetes.io/managed-by": MANAGER },
            },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": [webhook.ip()], "conditions": { "ready": true } }],
            "ports": [{ "name": "webhook", "port": webhook.port(), "protocol": "TCP" }],
        });
        self.cluster.apply(&slice.to_string()).unwrap();
        self.operators.lock().unwrap().push(operator);
    }

    /// Takes the newest replica out of the Service. It goes on running.
    pub fn take_operator(&self) -> Operator {
        let operator = self.operators.lock().unwrap().pop().expect("there is one");
        self.cluster
            .kubectl(&["delete", "endpointslice", "--namespace", SYSTEM, &operator.name])
            .unwrap();
        operator
    }

    /// Does something to the newest replica, which the Service leads to still.
    pub fn on_operator<T>(&self, work: impl FnOnce(&mut Operator) -> T) -> T {
        work(self.operators.lock().unwrap().last_mut().expect("there is one"))
    }

    /// Applies templates of the chart with these values.
    pub fn apply_chart(&self, parts: &[&str], values: &[&str]) {
        self.cluster.apply(&render(self.cluster, parts, values)).unwrap();
    }

    /// Waits until a marked pod is injected, and the policy refuses what is not.
    pub async fn wait_until_injected(&self) {
        let space = self.namespace("settling").await;
        let api = space.api::<Pod>();
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually("a marked pod is injected", async || {
            let pod = serde_json::from_value(crate::pods::marked("settling")).unwrap();
            api.create(&params, &pod).await.ok().filter(is_injected)
        })
        .await;
        space.abandon().await;
        let space = self.without_webhooks("settling").await;
        space.abandon().await;
    }

    /// A namespace of a test's own.
    pub async fn namespace(&self, name: &str) -> Space {
        self.labelled(name, json!({})).await
    }

    /// A namespace with labels.
    pub async fn labelled(&self, name: &str, labels: Value) -> Space {
        Space::made(self.client().await, name, labels).await
    }

    /// A namespace whose objects the webhooks are not asked about, so that the policy stands alone.
    pub async fn without_webhooks(&self, name: &str) -> Space {
        let space = self
            .labelled(name, json!({ "lockkeeper.io/injection": "disabled" }))
            .await;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually("the policy refuses a marked pod without a guard", async || {
            let pod: Pod = serde_json::from_value(crate::pods::marked("settling")).unwrap();
            let refused = space.api::<Pod>().create(&params, &pod).await.err()?;
            refused.to_string().contains("guarded").then_some(())
        })
        .await;
        space
    }

    /// A client with all rights, for the runtime of the caller.
    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.cluster.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    /// Runs kubectl as a user does, with warnings.
    pub fn kubectl(&self, space: &Space, arguments: &[&str], input: &Value) -> Said {
        let mut child = Command::new(self.cluster.program("kubectl").unwrap())
            .args(["--namespace", &space.name])
            .args(arguments)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.to_string().as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        Said {
            is_done: output.status.success(),
            output: String::from_utf8(output.stdout).unwrap(),
            words: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A port that stands before the registry.
    pub fn gate(&self) -> TcpListener {
        self.gates.lock().unwrap().pop().expect("there is one more")
    }

    /// A connection to the webhooks of each replica.
    pub fn connections(&self) -> Vec<TcpStream> {
        let operators = self.operators.lock().unwrap();
        operators
            .iter()
            .map(|operator| {
                self.host
                    .connect(operator.webhook, Duration::from_secs(1))
                    .unwrap()
            })
            .collect()
    }

    /// A folder for what a test needs.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.ensemble.directory().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The sum of a metric's lines of all replicas.
    pub fn measured(&self, metric: &str) -> f64 {
        let operators = self.operators.lock().unwrap();
        operators.iter().map(|operator| operator.measured(metric)).sum()
    }
}

impl Space {
    /// Deletes the namespace, and waits for nothing.
    pub async fn abandon(self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(&self.name, &DeleteParams::default()).await.unwrap();
    }
}

/// A listener on the host of the control plane.
fn listen(host: &Host) -> TcpListener {
    host.run(|| TcpListener::bind((host.address(), 0)))
        .unwrap()
        .unwrap()
}

fn free_address(host: &Host) -> SocketAddrV4 {
    let port = listen(host).local_addr().unwrap().port();
    SocketAddrV4::new(host.address(), port)
}

fn is_injected(pod: &Pod) -> bool {
    let inits = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    inits.into_iter().any(|container| container.name == "lockkeeper")
}

/// Templates of the chart, by the real helm.
pub fn render(cluster: &Cluster, parts: &[&str], values: &[&str]) -> String {
    let mut command = Command::new(cluster.program("helm").unwrap());
    command.args(["template", "lockkeeper", CHART, "--namespace", SYSTEM]);
    for part in parts {
        command.args(["--show-only", &format!("templates/{part}.yaml")]);
    }
    // Without a look at the cluster, for which the chart wants the operator's identity.
    let always = ["zookeeper.connect=zookeeper:2181", "zookeeper.authSecret=given"];
    for value in always.iter().chain(values) {
        command.args(["--set", value]);
    }
    let helm = command.output().unwrap();
    let words = String::from_utf8_lossy(&helm.stderr);
    assert!(helm.status.success(), "{words}");
    String::from_utf8(helm.stdout).unwrap()
}
