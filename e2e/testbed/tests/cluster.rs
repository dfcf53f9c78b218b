//! The test cluster itself: pods run and reach one another, and nodes fail.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lockkeeper_testbed::Cluster;
use lockkeeper_testbed::binaries;
use lockkeeper_testbed::clock::since_boot;
use lockkeeper_testbed::cluster::{Namespace, Node};
use lockkeeper_testbed::process::wait_for;

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(180);
const READY: &str = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";

/// A test that breaks a node runs alone; the others need all nodes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The image of the program that serves a line of text, or requests it.
fn caller(cluster: &Cluster) -> &'static str {
    static IMAGE: OnceLock<String> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let program = binaries::caller().unwrap();
        // Nodes do not look for a newer image of the same name, and the cluster may be an older one.
        let tag = since_boot().as_nanos();
        cluster
            .push_program(&format!("lockkeeper/caller:{tag}"), &program)
            .unwrap()
    })
}

/// How often the container of the pod `app` was restarted.
const RESTARTS: [&str; 5] = [
    "get",
    "pod",
    "app",
    "--output",
    "jsonpath={.status.containerStatuses[0].restartCount}",
];
/// When the container of the pod `app` was started.
const STARTED: [&str; 5] = [
    "get",
    "pod",
    "app",
    "--output",
    "jsonpath={.status.containerStatuses[0].state.running.startedAt}",
];

/// Starts a pod that answers `hello from NAME` on port 8000, and a service before it, on a node.
fn serve(cluster: &Cluster, namespace: &Namespace, name: &str, node: &str) {
    let image = caller(cluster);
    let within = namespace.name();
    cluster
        .apply(&format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {within}, labels: {{app: {name}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: app, image: "{image}", args: [serve, "8000", "hello from {name}"]}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}-service, namespace: {within}}}
spec: {{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 8000}}]}}
"#
        ))
        .unwrap();
    wait_for_pod(namespace, name);
}

/// Waits until a pod is ready.
fn wait_for_pod(namespace: &Namespace, name: &str) {
    let question = ["get", "pod", name, "--output", READY];
    let asked = namespace.wait_for(BOUND, &question, |text| text == "True");
    if let Err(error) = asked {
        let story = namespace.kubectl(&["describe", "pod", name]);
        panic!("{error:#}\n{}", story.unwrap_or_default());
    }
}

/// The answer that the program in one pod gets, once it gets one.
fn ask(namespace: &Namespace, from: &str, address: &str) -> String {
    let ask = ["exec", from, "--", "/program", "ask", address];
    namespace.wait_for(BOUND, &ask, |_| true).unwrap()
}

/// Names of the nodes, of any cluster.
fn nodes(cluster: &Cluster) -> Vec<String> {
    let names = ["get", "nodes", "--output", "jsonpath={.items[*].metadata.name}"];
    let names = cluster.kubectl(&names).unwrap();
    names.split_whitespace().map(str::to_owned).collect()
}

/// A node to break; `None`, with a message, if it is of a cluster of the user's own.
fn breakable(cluster: &Cluster, number: u8) -> Option<Node<'_>> {
    match cluster.node(number) {
        Ok(node) => Some(node),
        Err(reason) => {
            lockkeeper_skip::skip(reason);
            None
        }
    }
}

/// Waits until a node is Ready (`True`) or silent (`Unknown`). Returns how long that took.
fn wait_for_node(cluster: &Cluster, node: &str, status: &str) -> Duration {
    let began = since_boot();
    cluster
        .wait_for(BOUND, &["get", "node", node, "--output", READY], |text| {
            text == status
        })
        .unwrap();
    since_boot() - began
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
    let namespace = Namespace::new(cluster, "lk-test-log").unwrap();
    serve(cluster, &namespace, "app", &nodes(cluster)[0]);
    // The pod is Ready when its process was started, which may not have printed anything yet.
    let log = ["logs", "app", "--namespace", namespace.name()];
    let said = |log: &str| log == "hello from app serves\n";
    cluster.wait_for(BOUND, &log, said).unwrap();
}

#[test]
fn pods_reach_one_another_and_services_by_name_from_node_to_node_and_on_one_node() {
    let Some(cluster) = Cluster::shared() else { return };
    let _alone = alone();
    let namespace = Namespace::new(cluster, "lk-test-net").unwrap();
    let nodes = nodes(cluster);
    for (name, node) in [("a", &nodes[0]), ("b", &nodes[0]), ("c", &nodes[nodes.len() - 1])] {
        serve(cluster, &namespace, name, node);
    }
    for from in ["a", "b", "c"] {
        for to in ["a", "b", "c"] {
            let answer = format!("hello from {to}\n");
            let address = [
                "get",
                "pod",
                to,
                "--namespace",
                namespace.name(),
                "--output",
                "jsonpath={.status.podIP}",
            ];
            let address = cluster.kubectl(&address).unwrap();
            assert_eq!(
                ask(&namespace, from, &format!("{address}:8000")),
                answer,
                "{from} to {to}"
            );
            assert_eq!(
                ask(&namespace, from, &format!("{to}-service:80")),
                answer,
                "{from} to {to}"
            );
            let full = format!("{to}-service.{}.svc.cluster.local:80", namespace.name());
            assert_eq!(ask(&namespace, from, &full), answer, "{from} to {to}");
        }
    }
}

#[test]
fn a_program_on_the_control_planes_host_reaches_pods_and_is_reached_by_them() {
    let Some(cluster) = Cluster::shared() else { return };
    let _alone = alone();
    let host = match cluster.control_plane() {
        Ok(host) => host,
        Err(reason) => return lockkeeper_skip::skip(reason),
    };
    let namespace = Namespace::new(cluster, "lk-test-host").unwrap();
    serve(cluster, &namespace, "app", "n2");
    let program = binaries::caller().unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["serve", "8001", "hello from outside"]);
    let _server = host.spawn("server", command).unwrap();
    assert_eq!(
        ask(&namespace, "app", &format!("{}:8001", host.address())),
        "hello from outside\n"
    );
    let address = [
        "get",
        "pod",
        "app",
        "--namespace",
        namespace.name(),
        "--output",
        "jsonpath={.status.podIP}",
    ];
    let address = format!("{}:8000", cluster.kubectl(&address).unwrap());
    // The pod is Ready when its process was started, which may not answer yet.
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
    let namespace = Namespace::new(cluster, "lk-test-command").unwrap();
    serve(cluster, &namespace, "app", &node.name());
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
    let namespace = Namespace::new(cluster, "lk-test-cut").unwrap();
    serve(cluster, &namespace, "app", &node.name());
    node.cut().unwrap();
    let given_up = wait_for_node(cluster, &node.name(), "Unknown");
    node.restore().unwrap();
    let back = wait_for_node(cluster, &node.name(), "True");
    println!("given up after {given_up:.1?}, back after {back:.1?}");
    wait_for_pod(&namespace, "app");
    assert_eq!(namespace.kubectl(&RESTARTS).unwrap(), "0");
}

#[test]
fn a_node_that_crashes_takes_its_pods_with_it_and_starts_them_again_when_it_is_back() {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(node) = breakable(cluster, 1) else { return };
    let _alone = alone();
    let namespace = Namespace::new(cluster, "lk-test-crash").unwrap();
    serve(cluster, &namespace, "app", &node.name());
    node.crash().unwrap();
    // The node loses its network too, so this is about the pod and not about the client.
    let given_up = wait_for_node(cluster, &node.name(), "Unknown");
    node.boot().unwrap();
    let back = wait_for_node(cluster, &node.name(), "True");
    println!("given up after {given_up:.1?}, back after {back:.1?}");
    let restarted = |text: &str| text.parse().is_ok_and(|count: u32| count >= 1);
    namespace.wait_for(BOUND, &RESTARTS, restarted).unwrap();
    wait_for_pod(&namespace, "app");
    assert_eq!(ask(&namespace, "app", "app-service:80"), "hello from app\n");
}

#[test]
fn pods_run_on_while_kubelet_containerd_and_the_api_server_are_killed_and_started_again() {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(node) = breakable(cluster, 1) else { return };
    let _alone = alone();
    let namespace = Namespace::new(cluster, "lk-test-restart").unwrap();
    serve(cluster, &namespace, "app", &node.name());
    let before = namespace.kubectl(&STARTED).unwrap();
    assert!(!before.is_empty());
    for program in ["kubelet", "containerd"] {
        node.kill(program).unwrap();
        node.start_again(program).unwrap();
    }
    cluster.kill("kube-apiserver").unwrap();
    assert!(cluster.kubectl(&["get", "nodes"]).is_err());
    cluster.start_again("kube-apiserver").unwrap();
    wait_for_pod(&namespace, "app");
    assert_eq!(ask(&namespace, "app", "app-service:80"), "hello from app\n");
    assert_eq!(namespace.kubectl(&STARTED).unwrap(), before);
}
