//! Without the operator marked pods are refused, and all other objects are admitted as usual.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::api::DeleteParams;
use lockkeeper_product::beside::Tenant;
use lockkeeper_testbed::eventually::{BOUND, eventually};
use rustix::process::Signal;

use crate::images::{Behaviour, Gate, push};
use crate::pods::{marked, of_image, plain, words, wrapped};
use crate::webhooks::{PATIENT, Webhooks, alone};

/// How often the API server has called the webhook for pods, according to its own metric.
fn asked(webhooks: &Webhooks) -> u64 {
    let metrics = webhooks.cluster.kubectl(&["get", "--raw", "/metrics"]).unwrap();
    metrics
        .lines()
        .filter(|line| {
            line.starts_with("apiserver_admission_webhook_admission_duration_seconds_count")
                && line.contains("name=\"pods.lockkeeper.io\"")
        })
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

/// An unmarked pod is admitted without a call of the webhook.
async fn assert_others_get_in(webhooks: &Webhooks, space: &Tenant) {
    let before = asked(webhooks);
    let pod = space.try_out(&plain("unmarked")).await.unwrap();
    assert_eq!(words(&pod).0, serde_json::json!(["/app"]));
    assert_eq!(asked(webhooks), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_operator_stopped_a_marked_pod_is_refused_and_an_unmarked_one_is_not_held_up() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("stopped").await;
    webhooks.apply_chart(&["webhook"], &[]);
    space.try_out(&marked("before")).await.unwrap();
    assert!(asked(&webhooks) > 0);

    // The operator hangs.
    webhooks.on_operator(|operator| operator.process.signal(Signal::STOP));
    let refusal = space.try_out(&marked("hanging")).await.unwrap_err();
    assert!(
        refusal.contains("failed calling webhook \"pods.lockkeeper.io\""),
        "{refusal}"
    );
    assert_others_get_in(&webhooks, &space).await;

    // The operator is killed.
    webhooks.on_operator(|operator| operator.process.kill());
    let refusal = space.try_out(&marked("killed")).await.unwrap_err();
    assert!(
        refusal.contains("failed calling webhook \"pods.lockkeeper.io\""),
        "{refusal}"
    );
    assert_others_get_in(&webhooks, &space).await;

    // The operator's pods are gone.
    drop(webhooks.take_operator());
    let refusal = eventually("the Service leads nowhere", async || {
        let refusal = space.try_out(&marked("gone")).await.unwrap_err();
        refusal
            .contains("no endpoints available for service \"lockkeeper-webhook\"")
            .then_some(refusal)
    })
    .await;
    assert!(
        refusal.contains("failed calling webhook \"pods.lockkeeper.io\""),
        "{refusal}"
    );
    assert_others_get_in(&webhooks, &space).await;

    webhooks.apply_chart(&["webhook"], &[PATIENT]);
    webhooks.put_operator(webhooks.operator("operator-next", &[]).await);
    webhooks.wait_until_injected().await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_webhook_deleted_a_marked_pod_is_refused_by_the_policy_until_it_is_back() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("deleted").await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(space.client.clone());
    configurations
        .delete("lockkeeper", &DeleteParams::default())
        .await
        .unwrap();
    let refusal = eventually("the policy refuses it", async || {
        let refusal = space.try_out(&marked("unguarded")).await.err()?;
        refusal
            .contains("nothing would stop it from running twice")
            .then_some(refusal)
    })
    .await;
    assert!(
        refusal.contains("ValidatingAdmissionPolicy 'lockkeeper-guarded'")
            && refusal.contains("Is the webhook lockkeeper installed"),
        "{refusal}"
    );
    assert_others_get_in(&webhooks, &space).await;

    // The configuration has no bundle: the operator adds it.
    webhooks.apply_chart(&["webhook"], &[PATIENT]);
    webhooks.wait_until_injected().await;
    let pod = space.try_out(&marked("guarded")).await.unwrap();
    assert_eq!(words(&pod).0, wrapped(&["/app"]));
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_told_to_stop_answers_until_the_api_server_has_left_it() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("draining").await;
    push(
        &webhooks.host,
        "team/draining",
        "1",
        &serde_json::json!({ "Entrypoint": ["/draining"] }),
    );
    let gate = Gate::open(&webhooks.host, webhooks.gate(), None);
    gate.behave(Behaviour::Hangs);
    let pod = of_image("draining", &format!("{}/team/draining:1", gate.name));
    let under_way = space.try_out(&pod);
    let stopping = async {
        eventually("the registry is asked", async || {
            (!gate.seen().is_empty()).then_some(())
        })
        .await;
        webhooks.on_operator(|operator| operator.process.signal(Signal::TERM));
        eventually("it has heard", async || {
            let log = webhooks.on_operator(|operator| operator.log());
            log.contains("Stopping").then_some(())
        })
        .await;
        // Both then finish in time, however long the second one takes.
        gate.behave(Behaviour::Open);
        // The Service still leads to it.
        space.try_out(&marked("later")).await
    };
    let (pod, later) = tokio::join!(under_way, stopping);
    assert_eq!(words(&pod.unwrap()).0, wrapped(&["/draining"]));
    assert_eq!(words(&later.unwrap()).0, wrapped(&["/app"]));
    let mut operator = webhooks.take_operator();
    let status = operator.process.wait(BOUND).unwrap().expect("it ends");
    assert!(status.success(), "{}", operator.log());
    webhooks.put_operator(webhooks.operator("operator-after", &[]).await);
    webhooks.wait_until_injected().await;
    space.leave().await;
}
