//! What the cluster can do, found out by asking it: a pod is created as a dry run, and what comes back
//! shows whether a field was kept, dropped or refused. Version numbers say less: each of the features
//! can be switched off. What the kubelets can do is another question ([`super::nodes`]).

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::admission::inject::ClusterFacts;

/// Clusters are upgraded, and nodes come and go.
const PERIOD: Duration = Duration::from_secs(600);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(10);
/// Keeps `facts` up to date, and sets `known` after the first attempt: before that, a pod would be refused because
/// the features of the cluster are unknown. `image` is the sidecar's, which the cluster's policies on images have to
/// allow anyway.
pub(crate) async fn follow(
    client: Client,
    namespace: String,
    image: String,
    facts: watch::Sender<ClusterFacts>,
    known: watch::Sender<bool>,
) {
    loop {
        let pause = match detect(&client, &namespace, &image).await {
            Ok(found) => {
                let is_new = facts.send_if_modified(|facts| std::mem::replace(facts, found) != found);
                if is_new {
                    tracing::info!(facts = ?found, "Learnt what the cluster can do");
                }
                PERIOD
            }
            Err(error) => {
                // What was known stays; at first nothing is, and no pod is guarded by signals.
                tracing::warn!(%error, namespace, "Failed to learn what the cluster can do; trying again");
                PAUSE
            }
        };
        known.send_replace(true);
        tokio::time::sleep(pause).await;
    }
}

/// Asks once, with dry runs of pods with `image` in `namespace`.
///
/// # Errors
/// When a pod is refused for another reason than a field that is not known.
pub(crate) async fn detect(client: &Client, namespace: &str, image: &str) -> Result<ClusterFacts, Error> {
    let plain = pod(image);
    create(client, namespace, &plain).await?;

    let mut gated = pod(image);
    gated["spec"]["containers"][0]["env"] = json!([{ "name": "A", "valueFrom": { "fileKeyRef": {
        "volumeName": "v", "path": "f", "key": "A", "optional": false,
    } } }]);
    gated["spec"]["volumes"] = json!([{ "name": "v", "emptyDir": {} }]);

    let mut restarting = pod(image);
    restarting["spec"]["initContainers"] = json!([pod(image)["spec"]["containers"][0].clone()]);
    let init = &mut restarting["spec"]["initContainers"][0];
    init["name"] = json!("init");
    init["restartPolicy"] = json!("Always");
    init["restartPolicyRules"] = json!([{
        "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [88] },
    }]);

    let mut imaged = pod(image);
    imaged["spec"]["volumes"] = json!([{ "name": "v", "image": { "reference": image } }]);

    let keeps = async |pod, field| keeps(client, namespace, pod, field).await;
    Ok(ClusterFacts {
        is_known: true,
        file_key_ref: keeps(&gated, "/spec/containers/0/env/0/valueFrom/fileKeyRef").await?,
        restart_all_containers: keeps(&restarting, "/spec/initContainers/0/restartPolicyRules").await?,
        image_volumes: keeps(&imaged, "/spec/volumes/0/image").await?,
    })
}

/// Allowed by the level `restricted` of the Pod Security Standards, wherever the operator is installed.
fn pod(image: &str) -> Value {
    json!({
        "metadata": { "generateName": "lockkeeper-dry-run-" },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "dry-run",
                "image": image,
                "resources": { "requests": { "cpu": "1m", "memory": "1Mi" }, "limits": { "cpu": "1m", "memory": "1Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65532,
                    "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
                },
            }],
        },
    })
}

/// Every replica asks this, without a lease: the API server stores nothing of a dry run.
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
        Err(Error::Api(status)) if is_about(&status, pointer) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a pod is refused for this field, and not by a policy that has something against such pods: the API
/// server's own validation names fields, `spec.initContainers[0].restartPolicyRules[0].action` say, or what is
/// below or above them.
fn is_about(status: &Status, pointer: &str) -> bool {
    let plain = |field: &str| {
        field
            .replace(['[', ']'], ".")
            .replace("..", ".")
            .trim_end_matches('.')
            .to_owned()
    };
    let wanted = pointer.trim_start_matches('/').replace('/', ".");
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422
        && causes.map(|cause| plain(&cause.field)).any(|field| {
            field.len() > "spec".len() && (field.starts_with(&wanted) || wanted.starts_with(&field))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, fields: &[&str]) -> Status {
        let causes: Vec<_> = fields
            .iter()
            .map(|field| json!({ "reason": "FieldValueInvalid", "message": "", "field": field }))
            .collect();
        serde_json::from_value(json!({
            "status": "Failure", "code": code, "reason": "Invalid", "message": "", "details": { "causes": causes },
        }))
        .unwrap()
    }

    #[test]
    fn a_policy_that_refuses_a_pod_says_nothing_about_what_the_cluster_can_do() {
        let field = "/spec/initContainers/0/restartPolicyRules";
        for own in [
            &["spec.initContainers[0].restartPolicyRules[0].action"][..],
            &[
                "spec.containers[0].image",
                "spec.initContainers[0].restartPolicyRules",
            ],
            &["spec.initContainers[0]"],
        ] {
            assert!(is_about(&refused(422, own), field), "{own:?}");
        }
        for other in [&[][..], &["spec.containers[0].image"], &["spec"], &[""]] {
            assert!(!is_about(&refused(422, other), field), "{other:?}");
        }
        // As another webhook refuses.
        assert!(!is_about(&refused(403, &[]), field));
    }
}
