//! Third-party injectors, before ours and after it.

use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use lockkeeper_product::beside::Tenant;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::pods::{marked, sidecar, words, wrapped};
use crate::webhooks::shared;

/// Another injector, for the pods of one namespace: the API server asks it before all webhooks, and once more after
/// them.
struct Injector {
    name: String,
    policies: Api<MutatingAdmissionPolicy>,
    bindings: Api<MutatingAdmissionPolicyBinding>,
}

impl Injector {
    /// An injector that applies the patches of an expression.
    async fn new(space: &Tenant, patches: &str) -> Self {
        let name = format!("mesh-{}", space.name);
        let policy = json!({
            "metadata": { "name": name },
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": space.name } },
                    "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                                        "operations": ["CREATE"] }],
                },
                "failurePolicy": "Fail",
                "reinvocationPolicy": "IfNeeded",
                "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": patches } }],
            },
        });
        let binding = json!({ "metadata": { "name": name }, "spec": { "policyName": name } });
        let injector = Self {
            name,
            policies: Api::all(space.client.clone()),
            bindings: Api::all(space.client.clone()),
        };
        let params = PostParams::default();
        let policy = serde_json::from_value(policy).unwrap();
        injector.policies.create(&params, &policy).await.unwrap();
        let binding = serde_json::from_value(binding).unwrap();
        injector.bindings.create(&params, &binding).await.unwrap();
        injector
    }

    async fn leave(self) {
        let params = DeleteParams::default();
        self.bindings.delete(&self.name, &params).await.unwrap();
        self.policies.delete(&self.name, &params).await.unwrap();
    }
}

/// The other injector changes the pod after ours, on the second round; then the API server calls ours once
/// more.
#[tokio::test(flavor = "multi_thread")]
async fn the_sidecar_is_last_again_after_another_injector_put_a_container_behind_it() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.labelled("mesh", json!({ "mesh": "on" })).await;
    // It changes nothing on the first round, before ours has run.
    let injector = Injector::new(
        &space,
        "has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.name == 'lockkeeper') \
         && !object.spec.initContainers.exists(c, c.name == 'mesh') \
         ? [JSONPatch{op: 'add', path: '/spec/initContainers/-', value: Object.spec.initContainers{\
         name: 'mesh', image: 'mesh:1', restartPolicy: 'Always'}}] : []",
    )
    .await;
    let pod = eventually("the other injector works", async || {
        let pod = space.try_out(&marked("meshed")).await.unwrap();
        let inits = pod["spec"]["initContainers"].as_array().unwrap().clone();
        inits.iter().any(|init| init["name"] == "mesh").then_some(pod)
    })
    .await;
    sidecar(&pod);
    assert_eq!(words(&pod).0, wrapped(&["/app"]));
    injector.leave().await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_application_is_guarded_and_not_the_proxy_that_a_mesh_puts_before_it() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("proxied").await;
    let injector = Injector::new(
        &space,
        "object.spec.containers.exists(c, c.name == 'linkerd-proxy') ? [] \
         : [JSONPatch{op: 'add', path: '/spec/containers/0', value: Object.spec.containers{\
         name: 'linkerd-proxy', image: 'proxy:1'}}]",
    )
    .await;
    // A pod without an annotation is refused.
    let refusal = eventually("the other injector works", async || {
        space.try_out(&marked("bare")).await.err()
    })
    .await;
    assert!(
        refusal.contains("container `linkerd-proxy` is the proxy of a mesh"),
        "{refusal}"
    );
    // For a workload the original container is known.
    let pod = webhooks.deploy(&space).await;
    let [proxy, app] = [&pod["spec"]["containers"][0], &pod["spec"]["containers"][1]];
    assert_eq!(
        (&proxy["name"], &proxy["command"]),
        (&json!("linkerd-proxy"), &Value::Null)
    );
    assert_eq!(
        (&app["name"], &app["command"]),
        (&json!("app"), &wrapped(&["/app"]))
    );
    webhooks.kubectl(&space, &["delete", "deployment", "report"], &Value::Null);
    injector.leave().await;
    space.leave().await;
}
