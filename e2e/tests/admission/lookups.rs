//! The command of an image, looked up in a real registry.

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use lockkeeper_product::beside::Tenant;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::images::{Behaviour, Gate, push, push_index};
use crate::pods::{of_image, sidecar, words, wrapped};
use crate::webhooks::{PATIENT, REGISTRY, Webhooks, alone, shared};

/// A pod that requires `wrap`: without a command the webhook refuses it with the reason.
fn strict(name: &str, image: &str) -> Value {
    let mut pod = of_image(name, image);
    pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("wrap");
    pod
}

/// A Secret with a password for a registry.
async fn pull_secret(space: &Tenant, name: &str, registry: &str, password: &str) {
    let (user, password) = password.split_once(':').unwrap();
    let document = json!({ "auths": { registry: { "username": user, "password": password } } });
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": name }, "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": document.to_string() },
    }))
    .unwrap();
    space.api().create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_only_the_image_knows_is_wrapped_as_the_kubelet_would_have_run_it() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("image").await;
    let process = json!({ "Entrypoint": ["/entry", "$(x)"], "Cmd": ["serve"] });
    let pushed = push(&webhooks.host, "team/plain", "1", &process);
    for image in [
        format!("{REGISTRY}/team/plain:1"),
        format!("{REGISTRY}/team/plain@{}", pushed.digest),
    ] {
        let pod = space.try_out(&strict("plain", &image)).await.unwrap();
        assert_eq!(
            words(&pod),
            (wrapped(&["/entry", "$$(x)"]), json!(["serve"])),
            "{image}"
        );
        // The webhook does not pin it: the kubelet resolves the tag.
        assert_eq!(pod["spec"]["containers"][0]["image"], image);
    }
    let mut pod = strict("plain", &format!("{REGISTRY}/team/plain:1"));
    pod["spec"]["containers"][0]["args"] = json!(["other"]);
    let pod = space.try_out(&pod).await.unwrap();
    assert_eq!(words(&pod), (wrapped(&["/entry", "$$(x)"]), json!(["other"])));
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_many_platforms_counts_if_all_start_alike_or_the_pod_names_one() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("platforms").await;
    let name = "team/platforms";
    let [here, there, else_where] = ["/here", "/here", "/there"]
        .map(|program| push(&webhooks.host, name, "part", &json!({ "Entrypoint": [program] })));
    push_index(
        &webhooks.host,
        name,
        "alike",
        &[("amd64", &here), ("arm64", &there)],
    );
    push_index(
        &webhooks.host,
        name,
        "unlike",
        &[("amd64", &here), ("arm64", &else_where)],
    );
    let pod = space
        .try_out(&strict("alike", &format!("{REGISTRY}/{name}:alike")))
        .await;
    assert_eq!(words(&pod.unwrap()).0, wrapped(&["/here"]));
    let mut pod = strict("unlike", &format!("{REGISTRY}/{name}:unlike"));
    let refusal = space.try_out(&pod).await.unwrap_err();
    assert!(
        refusal.contains("starts differently on its platforms; with nodeSelector"),
        "{refusal}"
    );
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/arch": "arm64" });
    let pod = space.try_out(&pod).await.unwrap();
    assert_eq!(words(&pod).0, wrapped(&["/there"]));
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_wants_a_password_gets_that_of_the_pod_or_of_its_service_account() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("password").await;
    push(
        &webhooks.host,
        "team/private",
        "1",
        &json!({ "Cmd": ["/private"] }),
    );
    let gate = Gate::open(&webhooks.host, webhooks.gate(), Some("reader:open"));
    let image = format!("{}/team/private:1", gate.name);
    let refusal = space.try_out(&strict("none", &image)).await.unwrap_err();
    assert!(refusal.contains("does not tell its command"), "{refusal}");
    pull_secret(&space, "wrong", &gate.name, "reader:guess").await;
    pull_secret(&space, "right", &gate.name, "reader:open").await;

    let mut pod = strict("wrong", &image);
    pod["spec"]["imagePullSecrets"] = json!([{ "name": "missing" }, { "name": "wrong" }]);
    let refusal = space.try_out(&pod).await.unwrap_err();
    assert!(
        refusal.contains("does not tell its command") && !refusal.contains("guess"),
        "{refusal}"
    );
    pod["spec"]["imagePullSecrets"] = json!([{ "name": "wrong" }, { "name": "right" }]);
    let admitted = space.try_out(&pod).await.unwrap();
    assert_eq!(words(&admitted), (wrapped(&[]), json!(["/private"])));
    // Other pods do not profit from this pod's pull secret.
    let refusal = space.try_out(&strict("none", &image)).await.unwrap_err();
    assert!(refusal.contains("does not tell its command"), "{refusal}");

    let accounts = space.api::<ServiceAccount>();
    eventually("the account of the namespace", async || {
        accounts.get_opt("default").await.unwrap()
    })
    .await;
    let patch = json!({ "imagePullSecrets": [{ "name": "right" }] });
    accounts
        .patch("default", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let pod = eventually("the API server knows of the account's secret", async || {
        space.try_out(&strict("account", &image)).await.ok()
    })
    .await;
    assert_eq!(words(&pod).1, json!(["/private"]));
    space.leave().await;
}

/// A pod as it is admitted in the end. On a busy machine the operator refuses some of many pods because an
/// answer is late, and a controller tries these again.
async fn admitted(space: &Tenant, pod: &Value) -> Value {
    eventually("it is admitted", async || match space.try_out(pod).await {
        Err(refused) if refused.contains("its controller tries again") => None,
        admitted => Some(admitted.unwrap()),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_is_asked_once_and_may_be_away_afterwards() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("once").await;
    let pushed = push(
        &webhooks.host,
        "team/once",
        "1",
        &json!({ "Entrypoint": ["/once"] }),
    );
    let gate = Gate::open(&webhooks.host, webhooks.gate(), None);
    let image = format!("{}/team/once@{}", gate.name, pushed.digest);
    let pod = strict("once", &image);
    for pod in join_all((0..50).map(|_| admitted(&space, &pod))).await {
        assert_eq!(words(&pod).0, wrapped(&["/once"]));
    }
    let seen = gate.seen();
    let configurations = seen.iter().filter(|line| line.contains("/blobs/")).count();
    assert_eq!(configurations, 1, "{seen:?}");
    gate.behave(Behaviour::Broken);
    let pod = space.try_out(&strict("later", &image)).await.unwrap();
    assert_eq!(words(&pod).0, wrapped(&["/once"]));
    assert_eq!(gate.seen(), seen);

    // An image that was never looked up is unknown now.
    let refusal = space
        .try_out(&strict("other", &format!("{}/team/other:1", gate.name)))
        .await
        .unwrap_err();
    assert!(refusal.contains("set `command` in the pod"), "{refusal}");
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_hangs_holds_up_no_pod_for_long_and_decides_nothing() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("hangs").await;
    // The timeouts of the chart and of the operator belong together.
    drop(webhooks.take_operator());
    webhooks.put_operator(webhooks.operator_of_the_chart("operator-of-the-chart").await);
    webhooks.apply_chart(&["webhook"], &[]);
    webhooks.wait_until_injected().await;
    let gate = Gate::open(&webhooks.host, webhooks.gate(), None);
    gate.behave(Behaviour::Hangs);
    let image = format!("{}/team/hangs:1", gate.name);
    // The sentence is the webhook's: the API server's would say that the webhook did not answer.
    let refusal = space.try_out(&strict("strict", &image)).await.unwrap_err();
    assert!(
        refusal.contains(&format!("the registry of {image} did not answer within 3s"))
            && refusal.contains("set `command` in the pod; or set lockkeeper.io/guard to `signal`"),
        "{refusal}"
    );
    // A slow registry does not lead to a weaker guard.
    let refusal = space.try_out(&of_image("auto", &image)).await.unwrap_err();
    assert!(
        refusal.contains("did not answer within 3s") && refusal.contains("refused for now"),
        "{refusal}"
    );
    gate.behave(Behaviour::Broken);
    let refusal = space.try_out(&of_image("auto", &image)).await.unwrap_err();
    assert!(refusal.contains("refused for now"), "{refusal}");
    // A missing image does.
    gate.behave(Behaviour::Open);
    let said = webhooks.kubectl(
        &space,
        &["create", "-f", "-", "-o", "json"],
        &of_image("signal", &image),
    );
    assert!(said.is_done, "{}", said.words);
    assert!(
        said.words.contains("Warning: ") && said.words.contains("does not tell its command"),
        "{}",
        said.words
    );
    let pod: Value = serde_json::from_str(&said.output).unwrap();
    let container = json!({ "name": "LOCKKEEPER_CONTAINER", "value": "app" });
    assert!(sidecar(&pod)["env"].as_array().unwrap().contains(&container));
    assert_eq!(pod["spec"]["shareProcessNamespace"], true);
    for keys in ["labels", "annotations"] {
        assert_eq!(pod["metadata"][keys]["lockkeeper.io/guard"], "signal");
    }
    webhooks.apply_chart(&["webhook"], &[PATIENT]);
    drop(webhooks.take_operator());
    webhooks.put_operator(webhooks.operator("operator-patient", &[]).await);
    webhooks.wait_until_injected().await;
    space.leave().await;
}

/// How often clients have read one Secret, according to the API server.
fn reads(webhooks: &Webhooks) -> u64 {
    let metrics = webhooks.cluster.kubectl(&["get", "--raw", "/metrics"]).unwrap();
    metrics
        .lines()
        .filter(|line| {
            let is_read = |label: &&str| line.contains(*label);
            line.starts_with("apiserver_request_total{")
                && [r#"resource="secrets""#, r#"verb="GET""#].iter().all(is_read)
        })
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_pods_at_once_do_not_read_their_pull_secret_fifty_times() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("burst").await;
    push(
        &webhooks.host,
        "team/burst",
        "1",
        &json!({ "Entrypoint": ["/burst"] }),
    );
    let gate = Gate::open(&webhooks.host, webhooks.gate(), Some("reader:open"));
    pull_secret(&space, "right", &gate.name, "reader:open").await;
    let mut pod = strict("burst", &format!("{}/team/burst:1", gate.name));
    pod["spec"]["imagePullSecrets"] = json!([{ "name": "right" }]);
    let before = reads(&webhooks);
    for admitted in join_all((0..50).map(|_| admitted(&space, &pod))).await {
        assert_eq!(words(&admitted).0, wrapped(&["/burst"]));
    }
    // Other clients read Secrets now and then, too.
    assert!(reads(&webhooks) - before < 25);
    space.leave().await;
}
