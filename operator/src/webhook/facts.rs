//! What the cluster can do, found out by asking it: a pod is created as a dry run, and what comes back
//! shows whether a field was kept, dropped or refused. Version numbers say less: each of the features
//! can be switched off.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::inject::ClusterFacts;

/// Clusters are upgraded, and nodes come and go.
const PERIOD: Duration = Duration::from_secs(600);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(10);
/// Nodes in one page of a list.
const PAGE: u32 = 500;

/// Oldest runtimes with image volumes (KEP-4639).
const RUNTIMES: [(&str, (u32, u32)); 2] = [("containerd", (2, 1)), ("cri-o", (1, 31))];

/// Keeps `facts` up to date, and says in `known` that it has asked once: before, a pod would be refused for
/// what the cluster can do. `wants_images` is false where the binary is always to be copied.
pub async fn follow(
    client: Client,
    namespace: String,
    wants_images: bool,
    facts: watch::Sender<ClusterFacts>,
    known: watch::Sender<bool>,
) {
    loop {
        let pause = match detect(&client, &namespace, wants_images).await {
            Ok(found) => {
                let is_new = facts.send_if_modified(|facts| std::mem::replace(facts, found) != found);
                if is_new {
                    tracing::info!(facts = ?found, "Learnt what the cluster can do");
                }
                PERIOD
            }
            Err(error) => {
                tracing::warn!(%error, namespace, "Failed to learn what the cluster can do; taking it for old");
                PAUSE
            }
        };
        known.send_replace(true);
        tokio::time::sleep(pause).await;
    }
}

/// Asks once, with dry runs in `namespace`.
///
/// # Errors
/// When a pod without any new field cannot be created there.
pub async fn detect(client: &Client, namespace: &str, wants_images: bool) -> Result<ClusterFacts, Error> {
    let plain = pod();
    create(client, namespace, &plain).await?;

    let mut gated = pod();
    gated["spec"]["containers"][0]["env"] = json!([{ "name": "A", "valueFrom": { "fileKeyRef": {
        "volumeName": "v", "path": "f", "key": "A", "optional": false,
    } } }]);
    gated["spec"]["volumes"] = json!([{ "name": "v", "emptyDir": {} }]);

    let mut restarting = pod();
    restarting["spec"]["initContainers"] = json!([pod()["spec"]["containers"][0].clone()]);
    let init = &mut restarting["spec"]["initContainers"][0];
    init["name"] = json!("init");
    init["restartPolicy"] = json!("Always");
    init["restartPolicyRules"] = json!([{
        "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [88] },
    }]);

    let mut imaged = pod();
    imaged["spec"]["volumes"] = json!([{ "name": "v", "image": { "reference": "lockkeeper.invalid/x:1" } }]);

    Ok(ClusterFacts {
        file_key_ref: keeps(
            client,
            namespace,
            &gated,
            "/spec/containers/0/env/0/valueFrom/fileKeyRef",
        )
        .await?,
        restart_all_containers: keeps(
            client,
            namespace,
            &restarting,
            "/spec/initContainers/0/restartPolicyRules",
        )
        .await?,
        image_volumes: wants_images
            && keeps(client, namespace, &imaged, "/spec/volumes/0/image").await?
            && nodes_mount_images(client).await?,
    })
}

/// Allowed by the level `restricted` of the Pod Security Standards, wherever the operator is installed.
fn pod() -> Value {
    json!({
        "metadata": { "generateName": "lockkeeper-dry-run-" },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "dry-run",
                "image": "lockkeeper.invalid/dry-run:1",
                "resources": { "requests": { "cpu": "1m", "memory": "1Mi" }, "limits": { "cpu": "1m", "memory": "1Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65532,
                    "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
                },
            }],
        },
    })
}

async fn create(client: &Client, namespace: &str, pod: &Value) -> Result<Value, Error> {
    let pod: Pod = serde_json::from_value(pod.clone()).map_err(Error::SerdeError)?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let created = Api::<Pod>::namespaced(client.clone(), namespace)
        .create(&params, &pod)
        .await?;
    serde_json::to_value(created).map_err(Error::SerdeError)
}

/// Whether a field survives; a pod that is refused for it has not.
async fn keeps(client: &Client, namespace: &str, pod: &Value, pointer: &str) -> Result<bool, Error> {
    match create(client, namespace, pod).await {
        Ok(created) => Ok(created.pointer(pointer).is_some_and(|field| !field.is_null())),
        Err(Error::Api(status)) if [400, 422].contains(&status.code) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether all nodes can mount an image: on one that cannot, a pod would never start.
async fn nodes_mount_images(client: &Client) -> Result<bool, Error> {
    let api = Api::<Node>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        let runtimes = page.items.iter().filter_map(|node| {
            Some(
                node.status
                    .as_ref()?
                    .node_info
                    .as_ref()?
                    .container_runtime_version
                    .as_str(),
            )
        });
        if !runtimes.into_iter().all(mounts_images) {
            return Ok(false);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(true),
        }
    }
}

fn mounts_images(runtime: &str) -> bool {
    let Some((name, version)) = runtime.split_once("://") else {
        return false;
    };
    let mut numbers = version
        .trim_start_matches('v')
        .split('.')
        .map(|number| number.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    RUNTIMES
        .iter()
        .any(|(known, oldest)| *known == name && version >= *oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_mounts_images_only_if_its_runtime_is_known_to() {
        for (runtime, mounts) in [
            ("containerd://2.1.0", true),
            ("containerd://v2.4.2-k3s1", true),
            ("containerd://1.7.27", false),
            ("containerd://2.0.5", false),
            ("cri-o://1.31.0", true),
            ("cri-o://1.30.9", false),
            ("docker://27.0", false),
            ("", false),
        ] {
            assert_eq!(mounts_images(runtime), mounts, "{runtime}");
        }
    }
}
