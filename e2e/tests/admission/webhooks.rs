//! The objects of the chart in a cluster, and operators beside the API server that serve its webhooks.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use lockkeeper_product::beside::{BUSY, Environment, Operator, Tenant};
use lockkeeper_product::chart::{Helm, SYSTEM, Said};
use lockkeeper_testbed::eventually::{BOUND, eventually};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::shared::{Shared, Story, Visit};
use lockkeeper_testbed::{Cluster, Config, Ensemble, Host};
use serde_json::{Value, json};

/// Ports for gates in front of the registry: an operator gets the list of registries without TLS at its
/// start.
const GATES: usize = 8;

/// How long the API server waits for the webhooks: the maximum, because a busy machine answers late. A test
/// of the chart's own timeout applies the chart without this value, and runs alone.
pub const PATIENT: &str = "webhook.timeoutSeconds=30";

/// The manager of the endpoints of the webhooks' Service: not Kubernetes' controller, which would take them
/// from pods.
const MANAGER: &str = "lockkeeper-tests";

/// The registry of the cluster, as pods name it.
pub const REGISTRY: &str = "10.77.0.1:5000";

/// Parts of the chart that are always in the cluster.
const PARTS: [&str; 9] = [
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

/// An environment with the whole chart in it, whose operators the API server calls. They are on the host of the
/// control plane.
pub struct Webhooks {
    environment: Environment,
    gates: Mutex<Vec<TcpListener>>,
}

static WEBHOOKS: Shared<Webhooks> = Shared::new();

/// The webhooks, together with other tests. `None` where no cluster of ours can run.
pub async fn shared() -> Option<Visit<Webhooks>> {
    WEBHOOKS.together(Webhooks::start).await
}

/// The webhooks without other tests: for a test that breaks them for a while.
pub async fn alone() -> Option<Visit<Webhooks>> {
    WEBHOOKS.alone(Webhooks::start).await
}

impl Deref for Webhooks {
    type Target = Environment;

    fn deref(&self) -> &Environment {
        &self.environment
    }
}

impl Story for Webhooks {
    fn story(&self) -> String {
        self.environment.story()
    }
}

impl Webhooks {
    /// Applies the chart, starts one operator, and waits until the API server calls it.
    pub async fn start() -> Option<Self> {
        let cluster = Cluster::shared()?;
        let host = match cluster.control_plane() {
            Ok(host) => host.clone(),
            Err(reason) => {
                lockkeeper_skip::skip(reason);
                return None;
            }
        };
        let ensemble = Ensemble::start(Config {
            servers: 1,
            loopback: true,
            ..Config::default()
        })
        .expect("the server starts");
        let connect = cluster.lead_out(ensemble.address(0)).unwrap().to_string();
        let gates: Vec<_> = (0..GATES).map(|_| listen(&host)).collect();
        let plain_http = gates
            .iter()
            .map(|gate| gate.local_addr().unwrap().to_string())
            .fold(REGISTRY.to_owned(), |list, gate| format!("{list},{gate}"));
        let authority = cluster.authority();
        let options = [
            "--registry-plain-http",
            &plain_http,
            "--client-ca",
            authority.to_str().unwrap(),
            "--client-names",
            "kube-apiserver",
        ];
        let chart = Helm::of(cluster).unwrap().render(&PARTS, &[PATIENT]);
        let options = options.map(str::to_owned).to_vec();
        let webhooks = Self {
            environment: Environment::without_operators(cluster, ensemble, host, connect, options, &chart),
            gates: Mutex::new(gates),
        };
        // Endpoints of an earlier run, whose operators are gone.
        let of_tests = format!("endpointslice.kubernetes.io/managed-by={MANAGER}");
        let delete = [
            "delete",
            "endpointslices",
            "--namespace",
            SYSTEM,
            "--selector",
            &of_tests,
        ];
        cluster.kubectl(&delete).unwrap();
        webhooks.put_operator(webhooks.operator("operator-0", &[]).await);
        webhooks.wait_until_injected().await;
        Some(webhooks)
    }

    /// An operator that also waits longer for a registry than the chart lets it, as [`PATIENT`]: what stands for one in a test
    /// may answer late, too.
    pub async fn operator(&self, name: &str, more: &[&str]) -> Operator {
        let more = [more, &["--registry-timeout", "20s"]].concat();
        self.environment.operator(name, &more).await
    }

    /// An operator with the timeouts of the chart.
    pub async fn operator_of_the_chart(&self, name: &str) -> Operator {
        self.environment.operator(name, &[]).await
    }

    /// Adds a replica to the Service of the chart, so that the API server calls it.
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
        self.environment.put_operator(operator);
    }

    /// Removes the newest replica from the Service. It goes on running.
    pub fn take_operator(&self) -> Operator {
        let operator = self.environment.take_operator();
        self.cluster
            .kubectl(&["delete", "endpointslice", "--namespace", SYSTEM, &operator.name])
            .unwrap();
        operator
    }

    /// Runs `work` on the newest replica, which stays in the Service.
    pub fn on_operator<T>(&self, work: impl FnOnce(&mut Operator) -> T) -> T {
        work(self.environment.operators().last_mut().expect("there is one"))
    }

    /// Applies templates of the chart with these values.
    pub fn apply_chart(&self, parts: &[&str], values: &[&str]) {
        self.cluster.apply(&self.render(parts, values)).unwrap();
    }

    /// Templates of the chart with these values.
    pub fn render(&self, parts: &[&str], values: &[&str]) -> String {
        Helm::of(self.cluster).unwrap().render(parts, values)
    }

    /// Waits until a marked pod is injected, and the policy refuses one that is not.
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

    /// A namespace without the webhooks, so that only the policy works.
    pub async fn without_webhooks(&self, name: &str) -> Tenant {
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

    /// Runs kubectl as a user does, with warnings. Again while the operator says that the API server has not answered it: a
    /// user would do the same.
    pub fn kubectl(&self, space: &Tenant, arguments: &[&str], input: &Value) -> Said {
        let answered = || {
            let said = self.kubectl_once(space, arguments, input);
            (said.is_done || !said.words.contains(BUSY)).then_some(said)
        };
        wait_for(BOUND, answered).expect("the API server answers the operator")
    }

    fn kubectl_once(&self, space: &Tenant, arguments: &[&str], input: &Value) -> Said {
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
        Said::from(child.wait_with_output().unwrap())
    }

    /// Makes a Deployment behind the lock `report`, as a user does, without a warning; returns its pod.
    pub async fn deploy(&self, space: &Tenant) -> Value {
        let deployment =
            crate::pods::workload("Deployment", "report", json!({ "lockkeeper.io/lock": "report" }));
        let said = self.kubectl(space, &["create", "-f", "-"], &deployment);
        assert!(said.is_done && said.words.is_empty(), "{}", said.words);
        let api = space.api::<Pod>();
        let pod = eventually("its pod", async || {
            let pods = api.list(&ListParams::default()).await.unwrap();
            pods.items.into_iter().next()
        })
        .await;
        serde_json::to_value(pod).unwrap()
    }

    /// A port for a gate in front of the registry.
    pub fn gate(&self) -> TcpListener {
        self.gates.lock().unwrap().pop().expect("there is one more")
    }

    /// A connection to the webhooks of each replica.
    pub fn connections(&self) -> Vec<TcpStream> {
        let operators = self.environment.operators();
        operators
            .iter()
            .map(|operator| operator.connect().unwrap())
            .collect()
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.environment.ensemble.directory().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The sum of a metric's lines of all replicas.
    pub async fn measured(&self, metric: &str) -> f64 {
        let mut sum = 0.0;
        for pages in self.environment.pages() {
            sum += pages.measured(metric).await;
        }
        sum
    }
}

/// A listener on the host of the control plane.
fn listen(host: &Host) -> TcpListener {
    host.run(|| TcpListener::bind((host.address(), 0)))
        .unwrap()
        .unwrap()
}

fn is_injected(pod: &Pod) -> bool {
    let inits = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    inits.into_iter().any(|container| container.name == "lockkeeper")
}
