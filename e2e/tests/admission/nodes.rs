//! A pod is guarded by signals only where each node that it may go to starts it through its gate.

use lockkeeper_testbed::Cluster;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::pods::{marked, words, wrapped};
use crate::webhooks::alone;

/// Has the gate, and mounts images.
pub const NEW: &str = "v1.35.0";

/// The first kubelet that reads the lease file before it starts a container is 1.35 (docs/operator.md#admission).
const OLDER: &str = "v1.34.9";

/// A node of the API server alone, without a kubelet. Drop deletes it: other tests count nodes, too.
pub struct Node<'a> {
    cluster: &'static Cluster,
    name: &'a str,
}

impl<'a> Node<'a> {
    pub fn new(cluster: &'static Cluster, name: &'a str, kubelet: &str) -> Self {
        let node = Self { cluster, name };
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { "example.com/pool": name } },
            "status": { "nodeInfo": info(kubelet) },
        });
        cluster.apply(&object.to_string()).unwrap();
        node
    }

    /// As after an upgrade of the machine.
    fn report(&self, kubelet: &str) {
        let patch = json!({ "status": { "nodeInfo": info(kubelet) } }).to_string();
        let words = [
            "patch",
            "node",
            self.name,
            "--subresource=status",
            "--patch",
            &patch,
        ];
        self.cluster.kubectl(&words).unwrap();
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let words = ["delete", "node", self.name, "--wait=false", "--ignore-not-found"];
        if let Err(error) = self.cluster.kubectl(&words) {
            eprintln!("{error:#}");
        }
    }
}

fn info(kubelet: &str) -> Value {
    json!({
        "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2.1.0",
        "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": kubelet, "machineID": "",
        "operatingSystem": "linux", "osImage": "", "systemUUID": "",
    })
}

/// A pod for which nothing but signals is left, once because its user wants them.
fn of_signals() -> [Value; 2] {
    let [mut wanted, mut shared] = ["wanted", "shared"].map(|name| {
        let mut pod = marked(name);
        // Then the webhook asks no registry for the user.
        pod["spec"]["securityContext"] = json!({ "runAsUser": 1000 });
        pod
    });
    wanted["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("signal");
    shared["spec"]["shareProcessNamespace"] = json!(true);
    [wanted, shared]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_may_go_to_a_node_without_the_gate_is_not_guarded_by_signals() {
    // Alone, since the operators of other tests read the nodes, too.
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("ungated").await;
    let is_signalled = |pod: &Value| {
        pod["metadata"]["annotations"]["lockkeeper.io/guard"] == "signal"
            && words(pod).0 == json!(["/app"])
            && pod["spec"]["shareProcessNamespace"] == true
    };
    // The operator learns of a node, and of what the API server can do, after a moment.
    let admitted = async |pod: &Value| {
        let admitted = eventually("it is admitted", async || space.try_out(pod).await.ok()).await;
        assert!(is_signalled(&admitted), "{admitted:#}");
    };
    let refused = async |pod: &Value, why: &str| {
        eventually("it is refused", async || match space.try_out(pod).await {
            Ok(_) => None,
            Err(sentence) => sentence.contains(why).then_some(sentence),
        })
        .await
    };
    for pod in of_signals() {
        admitted(&pod).await;
    }

    let older = Node::new(webhooks.cluster, "older", OLDER);
    for mut pod in of_signals() {
        let why = format!("node older has kubelet {OLDER}");
        let sentence = refused(&pod, &why).await;
        assert!(
            sentence.contains("keep the pod to nodes with 1.35 or newer by nodeSelector"),
            "{sentence}"
        );
        // An affinity does not count, nor does the taint that the API server gives to a node without a kubelet.
        pod["spec"]["affinity"] = json!({ "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "example.com/pool", "operator": "DoesNotExist" }] },
            ] },
        } });
        refused(&pod, &why).await;
        pod["spec"]["affinity"] = Value::Null;
        pod["spec"]["nodeSelector"] = json!({ "example.com/pool": "older" });
        refused(&pod, &why).await;
        // Its selector leaves the node out.
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "n1" });
        let pod = space.try_out(&pod).await.unwrap();
        assert!(is_signalled(&pod), "{pod:#}");
    }
    // The guard as the first process needs no gate.
    let pod = space.try_out(&marked("wrapped")).await.unwrap();
    assert_eq!(words(&pod).0, wrapped(&["/app"]));

    older.report("");
    for pod in of_signals() {
        refused(&pod, "node older has kubelet of an unknown version").await;
    }
    older.report(NEW);
    for pod in of_signals() {
        admitted(&pod).await;
    }
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_kubelet_mounts_no_images_the_binary_is_copied_into_the_pod() {
    // Alone, since the operators of other tests read the nodes, too.
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("copied").await;
    // The operator learns of a node, and of what the API server can do, after a moment.
    let gets = async |wanted: &[&str]| {
        eventually("the pod gets the binary in that way", async || {
            let pod = space.try_out(&marked("pod")).await.ok()?;
            let inits = pod["spec"]["initContainers"].as_array()?;
            let names: Vec<_> = inits.iter().filter_map(|init| init["name"].as_str()).collect();
            (names == wanted).then_some(())
        })
        .await;
    };
    gets(&["lockkeeper"]).await;
    // Its runtime could mount them, and the API server keeps the field.
    let older = Node::new(webhooks.cluster, "no-images", OLDER);
    gets(&["lockkeeper-install", "lockkeeper"]).await;
    older.report(NEW);
    gets(&["lockkeeper"]).await;
    drop(older);
    space.leave().await;
}
