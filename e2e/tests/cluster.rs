//! What tests may expect of a cluster: pods that run and reach one another, and nodes that fail.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lockkeeper_e2e::cluster::Node;
use lockkeeper_e2e::process::wait_for;
use lockkeeper_e2e::{Cluster, binaries};
use lockkeeper_lock::BootInstant;

/// Generous: the machine may have other work to do.
const BOUND: Duration = Duration::from_secs(180);
const READY: &str = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";

/// Tests that break a node do it alone; the others need all nodes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The image of the program that serves a line of text, and asks for it.
fn caller(cluster: &Cluster) -> &'static str {
    static IMAGE: OnceLock<String> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let program = binaries::static_program("lockkeeper-caller").unwrap();
        // Nodes do not look for a newer image of the same name, and the cluster may be an older one.
        let tag = BootInstant::now().as_nanos();
        cluster
            .push_program(&format!("lockkeeper/caller:{tag}"), &program)
            .unwrap()
    })
}

/// A Kubernetes namespace of one test, with all that is in it.
struct Space {
    cluster: &'static Cluster,
    name: &'static str,
}

impl Space {
    fn new(cluster: &'static Cluster, name: &'static str) -> Self {
        // Of a run that was killed.
        let _ = cluster.kubectl(&["delete", "namespace", name, "--ignore-not-found"]);
        cluster.kubectl(&["create", "namespace", name]).unwrap();
        let account = ["get", "serviceaccount", "default", "--namespace", name];
        cluster.wait_for(BOUND, &account, |_| true).unwrap();
        Self { cluster, name }
    }

    /// Starts a pod that answers `hello from NAME` on port 8000, and a service before it, on a node.
    fn serve(&self, name: &str, node: &str) {
        let image = caller(self.cluster);
        let space = self.name;
        self.cluster
            .apply(&format!(
                r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {space}, labels: {{app: {name}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: app, image: "{image}", args: [serve, "8000", "hello from {name}"]}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}-service, namespace: {space}}}
spec: {{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 8000}}]}}
"#
            ))
            .unwrap();
        self.wait_for_pod(name, "True");
    }

    fn wait_for_pod(&self, name: &str, ready: &str) {
        let question = ["get", "pod", name, "--namespace", self.name, "--output", READY];
        let asked = self.cluster.wait_for(BOUND, &question, |text| text == ready);
        if let Err(error) = asked {
            let story = self
                .cluster
                .kubectl(&["describe", "pod", name, "--namespace", self.name]);
            panic!("{error:#}\n{}", story.unwrap_or_default());
        }
    }

    /// What the program in one pod is answered, once it is.
    fn ask(&self, from: &str, address: &str) -> String {
        let ask = [
            "exec",
            from,
            "--namespace",
            self.name,
            "--",
            "/program",
            "ask",
            address,
        ];
        self.cluster.wait_for(BOUND, &ask, |_| true).unwrap()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let delete = ["delete", "namespace", self.name, "--wait=false"];
        if let Err(error) = self.cluster.kubectl(&delete) {
            eprintln!("{error:#}");
        }
    }
}

/// Names of the nodes, of any cluster.
fn nodes(cluster: &Cluster) -> Vec<String> {
    let names = ["get", "nodes", "--output", "jsonpath={.items[*].metadata.name}"];
    let names = cluster.kubectl(&names).unwrap();
    names.split_whitespace().map(str::to_owned).collect()
}

/// A node to be broken; `None`, with a word about it, where it is not ours.
fn breakable(cluster: &Cluster, number: u8) -> Option<Node<'_>> {
    match cluster.node(number) {
        Ok(node) => Some(node),
        Err(reason) => {
            println!("SKIPPED: {reason}");
            None
        }
    }
}

/// Waits until a node is Ready (`True`) or is not heard of (`Unknown`); tells how long that took.
fn wait_for_node(cluster: &Cluster, node: &str, status: &str) -> Duration {
    let began = BootInstant::now();
    cluster
        .wait_for(BOUND, &["get", "node", node, "--output", READY], |text| {
            text == status
        })
        .unwrap();
    BootInstant::now() - began
}

#[test]
fn all_nodes_are_ready_when_the_cluster_has_started() {
    let Some(cluster) = Cluster::shared() else { return };
    let _alone = alone();
    let nodes = nodes(cluster);
    assert!(!nodes.is_empty());
    for node in nodes {
        let status = cluster.kubectl(&["get", "node", &node, "--output", READY]);
        assert_eq!(status.unwrap(), "True", "{node}");
    }
}

#[test]
fn a_pod_from_an_image_of_the_own_registry_runs_and_its_log_can_be_read() {
    let Some(cluster) = Cluster::shared() else { return };
    let _alone = alone();
    let space = Space::new(cluster, "lk-test-log");
    space.serve("app", &nodes(cluster)[0]);
    // It is Ready when it was started, and may not have said it yet.
    let log = ["logs", "app", "--namespace", space.name];
    let said = |log: &str| log == "hello from app serves\n";
    cluster.wait_for(BOUND, &log, said).unwrap();
}

#[test]
fn pods_reach_one_another_and_services_by_name_from_node_to_node_and_on_one_node() {
    let Some(cluster) = Cluster::shared() else { return };
    let _alone = alone();
    let space = Space::new(cluster, "lk-test-net");
    let nodes = nodes(cluster);
    for (name, node) in [("a", &nodes[0]), ("b", &nodes[0]), ("c", &nodes[nodes.len() - 1])] {
        space.serve(name, node);
    }
    for from in ["a", "b", "c"] {
        for to in ["a", "b", "c"] {
            let answer = format!("hello from {to}\n");
            let address = [
                "get",
                "pod",
                to,
                "--namespace",
                space.name,
                "--output",
                "jsonpath={.status.podIP}",
            ];
            let address = cluster.kubectl(&address).unwrap();
            assert_eq!(
                space.ask(from, &format!("{address}:8000")),
                answer,
                "{from} to {to}"
            );
            assert_eq!(
                space.ask(from, &format!("{to}-service:80")),
                answer,
                "{from} to {to}"
            );
            let full = format!("{to}-service.{}.svc.cluster.local:80", space.name);
            assert_eq!(space.ask(from, &full), answer, "{from} to {to}");
        }
    }
}

#[test]
fn a_program_on_the_control_planes_host_reaches_pods_and_is_reached_by_them() {
    let Some(cluster) = Cluster::shared() else { return };
    let _alone = alone();
    let host = match cluster.control_plane() {
        Ok(host) => host,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let space = Space::new(cluster, "lk-test-host");
    space.serve("app", "n2");
    let program = binaries::static_program("lockkeeper-caller").unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["serve", "8001", "hello from outside"]);
    let _server = host.spawn("server", command).unwrap();
    assert_eq!(
        space.ask("app", &format!("{}:8001", host.address())),
        "hello from outside\n"
    );
    let address = [
        "get",
        "pod",
        "app",
        "--namespace",
        space.name,
        "--output",
        "jsonpath={.status.podIP}",
    ];
    let address = format!("{}:8000", cluster.kubectl(&address).unwrap());
    // It is Ready when it was started, and may not answer yet.
    let answer = wait_for(BOUND, || {
        let mut command = std::process::Command::new(&program);
        command
            .args(["ask", &address])
            .stdout(std::process::Stdio::piped());
        let output = host.spawn("client", command).unwrap().output().unwrap();
        output.status.success().then_some(output.stdout)
    });
    assert_eq!(answer.as_deref(), Some(&b"hello from app\n"[..]));
}

#[test]
fn a_command_on_a_node_sees_what_runs_there() {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(node) = breakable(cluster, 2) else { return };
    let _alone = alone();
    let space = Space::new(cluster, "lk-test-command");
    space.serve("app", &node.name());
    let ctr = cluster.program("ctr").unwrap();
    let list = node
        .run(&ctr, &["--namespace", "k8s.io", "containers", "list"])
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains(caller(cluster)), "{list}");
}

#[test]
fn a_node_that_is_cut_off_is_given_up_comes_back_and_its_pods_have_run_on() {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(node) = breakable(cluster, 2) else { return };
    let _alone = alone();
    let space = Space::new(cluster, "lk-test-cut");
    space.serve("app", &node.name());
    node.cut().unwrap();
    let given_up = wait_for_node(cluster, &node.name(), "Unknown");
    node.restore().unwrap();
    let back = wait_for_node(cluster, &node.name(), "True");
    println!("given up after {given_up:.1?}, back after {back:.1?}");
    space.wait_for_pod("app", "True");
    let restarts = [
        "get",
        "pod",
        "app",
        "--namespace",
        space.name,
        "--output",
        "jsonpath={.status.containerStatuses[0].restartCount}",
    ];
    assert_eq!(cluster.kubectl(&restarts).unwrap(), "0");
}

#[test]
fn a_node_that_crashes_takes_its_pods_with_it_and_starts_them_again_when_it_is_back() {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(node) = breakable(cluster, 1) else { return };
    let _alone = alone();
    let space = Space::new(cluster, "lk-test-crash");
    space.serve("app", &node.name());
    node.crash().unwrap();
    // It takes its network away with it, so this is about the pod, not about who asks.
    let given_up = wait_for_node(cluster, &node.name(), "Unknown");
    node.boot().unwrap();
    let back = wait_for_node(cluster, &node.name(), "True");
    println!("given up after {given_up:.1?}, back after {back:.1?}");
    let restarts = [
        "get",
        "pod",
        "app",
        "--namespace",
        space.name,
        "--output",
        "jsonpath={.status.containerStatuses[0].restartCount}",
    ];
    let restarted = |text: &str| text.parse().is_ok_and(|count: u32| count >= 1);
    cluster.wait_for(BOUND, &restarts, restarted).unwrap();
    space.wait_for_pod("app", "True");
    assert_eq!(space.ask("app", "app-service:80"), "hello from app\n");
}

#[test]
fn pods_run_on_while_kubelet_containerd_and_the_api_server_are_killed_and_started_again() {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(node) = breakable(cluster, 1) else { return };
    let _alone = alone();
    let space = Space::new(cluster, "lk-test-restart");
    space.serve("app", &node.name());
    let started = [
        "get",
        "pod",
        "app",
        "--namespace",
        space.name,
        "--output",
        "jsonpath={.status.containerStatuses[0].state.running.startedAt}",
    ];
    let before = cluster.kubectl(&started).unwrap();
    assert!(!before.is_empty());
    for program in ["kubelet", "containerd"] {
        node.kill(program).unwrap();
        node.start_again(program).unwrap();
    }
    cluster.kill("kube-apiserver").unwrap();
    assert!(cluster.kubectl(&["get", "nodes"]).is_err());
    cluster.start_again("kube-apiserver").unwrap();
    space.wait_for_pod("app", "True");
    assert_eq!(space.ask("app", "app-service:80"), "hello from app\n");
    assert_eq!(cluster.kubectl(&started).unwrap(), before);
}
