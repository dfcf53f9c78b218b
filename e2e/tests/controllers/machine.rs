//! A machine, as Kubernetes sees it: a node whose kubelet is played here. No container runs on it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_testbed::Cluster;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A fraction of the time after which Kubernetes takes a silent kubelet for gone.
const BEAT: Duration = Duration::from_secs(1);

/// A node. It is deleted when it is dropped: other tests need a cluster whose nodes all work.
pub struct Machine {
    pub name: String,
    api: Api<Node>,
    cluster: &'static Cluster,
    kubelet: JoinHandle<()>,
}

impl Machine {
    /// A new machine that works.
    pub async fn boot(environment: &Environment, space: &Tenant, name: &str) -> Self {
        let name = format!("{name}-{}", space.name);
        let api = Api::all(space.client.clone());
        create(&api, &name).await;
        let machine = Self {
            kubelet: kubelet(&api, &name),
            name,
            api,
            cluster: environment.cluster,
        };
        machine.wait_for_ready("True").await;
        machine
    }

    /// A pod on it, behind a lock. Taints do not drive it away.
    pub async fn pod(&self, space: &Tenant, name: &str, lock: &str) -> Pod {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "lockkeeper.io/lock": lock } },
            "spec": {
                "nodeName": self.name,
                "tolerations": [{ "operator": "Exists" }],
                "containers": [{ "name": "app", "image": "none" }],
            },
        }))
        .unwrap();
        space.api().create(&PostParams::default(), &pod).await.unwrap()
    }

    /// Nothing is heard of it any more, and Kubernetes has noticed that.
    pub async fn fall_silent(&self) {
        self.kubelet.abort();
        write_ready(&self.api, &self.name, "Unknown").await;
        self.wait_for_ready("Unknown").await;
    }

    /// An administrator says that its machine is off.
    pub async fn put_out_of_service(&self) {
        self.taints(json!([{ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" }]))
            .await;
    }

    /// An administrator says that it may be used again.
    pub async fn put_into_service(&self) {
        self.taints(json!([])).await;
    }

    /// The node is deleted, and created again under its name. Its kubelet is silent.
    pub async fn create_again(&self) {
        self.kubelet.abort();
        let before = self.api.get(&self.name).await.unwrap().uid();
        let now = DeleteParams::default().grace_period(0);
        self.api.delete(&self.name, &now).await.unwrap();
        eventually("the node is gone", async || {
            let found = self.api.get_opt(&self.name).await.unwrap();
            found.is_none_or(|node| node.uid() != before).then_some(())
        })
        .await;
        create(&self.api, &self.name).await;
        write_ready(&self.api, &self.name, "Unknown").await;
        self.wait_for_ready("Unknown").await;
    }

    async fn taints(&self, taints: Value) {
        let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
        let params = PatchParams::default();
        self.api.patch(&self.name, &params, &patch).await.unwrap();
    }

    async fn wait_for_ready(&self, wanted: &str) {
        eventually(&format!("{} is {wanted}", self.name), async || {
            let node = self.api.get(&self.name).await.unwrap();
            let conditions = node.status?.conditions?;
            let ready = conditions.iter().find(|one| one.type_ == "Ready")?;
            (ready.status == wanted).then_some(())
        })
        .await;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kubelet.abort();
        let words = ["delete", "node", &self.name, "--wait=false", "--ignore-not-found"];
        if let Err(error) = self.cluster.kubectl(&words) {
            eprintln!("{error:#}");
        }
    }
}

/// Makes a node, and waits until pods that are made from now on are younger by the clock of the API server, which counts
/// whole seconds.
async fn create(api: &Api<Node>, name: &str) {
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let node = api.create(&PostParams::default(), &node).await.unwrap();
    let Time(created) = node.creation_timestamp().unwrap();
    eventually("the next second", async || {
        (Timestamp::now().as_second() > created.as_second()).then_some(())
    })
    .await;
}

/// Says again and again that it is ready.
fn kubelet(api: &Api<Node>, name: &str) -> JoinHandle<()> {
    let (api, name) = (api.clone(), Arc::<str>::from(name));
    tokio::spawn(async move {
        loop {
            // A kubelet goes on as well if the API server does not answer once.
            if let Err(error) = try_to_write_ready(&api, &name, "True").await {
                eprintln!("{name}: {error}");
            }
            tokio::time::sleep(BEAT).await;
        }
    })
}

async fn write_ready(api: &Api<Node>, name: &str, status: &str) {
    try_to_write_ready(api, name, status).await.unwrap();
}

async fn try_to_write_ready(api: &Api<Node>, name: &str, status: &str) -> kube::Result<Node> {
    let now = Time(Timestamp::now());
    let ready = json!({ "type": "Ready", "status": status, "reason": "Played", "message": "",
                        "lastHeartbeatTime": now, "lastTransitionTime": now });
    let patch = Patch::Merge(json!({ "status": { "conditions": [ready] } }));
    let params = PatchParams::default();
    api.patch_status(name, &params, &patch).await
}
