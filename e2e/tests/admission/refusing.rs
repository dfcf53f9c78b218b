//! Pods that cannot be guarded are refused with one sentence, which kubectl shows.

use kube::api::{Patch, PatchParams, PostParams};
use lockkeeper_crds::DistributedLock;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::pods::{marked, workload};
use crate::webhooks::shared;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_refused_while_its_lock_is_in_another_ensemble_than_the_operator_reaches() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("ensemble").await;
    let locks = space.api::<DistributedLock>();
    let lock = DistributedLock::new("report", Default::default());
    locks.create(&PostParams::default(), &lock).await.unwrap();
    let status_of = async || locks.get("report").await.unwrap().status.unwrap_or_default();
    let ours = eventually("the lock has an ensemble", async || status_of().await.ensemble).await;
    let pod = space.try_out(&marked("ours")).await.unwrap();
    assert_eq!(pod["metadata"]["annotations"]["lockkeeper.io/ensemble"], *ours.id);
    // As an operator of another ensemble would write it.
    let other = json!({ "status": { "ensemble": { "id": uuid::Uuid::nil().to_string() } } });
    let params = PatchParams::default();
    locks
        .patch_status("report", &params, &Patch::Merge(other))
        .await
        .unwrap();
    let refusal = eventually("a pod is refused", async || {
        space.try_out(&marked("theirs")).await.err()
    })
    .await;
    assert!(
        refusal.contains("DistributedLock `report` admits no pod now: ") && refusal.contains(&ours.id),
        "{refusal}"
    );
    space.abandon().await;
}

/// A change after which the pod is refused.
type Edit = fn(&mut Value);

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_pod_is_refused_with_one_sentence_that_says_what_would_be_right() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("bad").await;
    let cases: [(Edit, &str); 10] = [
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("Not_A_Label"),
            "it must be of 1 to 63 lower-case letters, digits and dashes",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("a,b"),
            "a pod can have one lock, and lockkeeper.io/lock names several (`a,b`): name one of them",
        ),
        (
            |pod| pod["metadata"]["labels"] = json!({ "lockkeeper.io/lock": "other" }),
            "a pod can have one lock, and its label lockkeeper.io/lock says `other` where its annotation says `report`",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/container"] = json!("web"),
            "lockkeeper.io/container is `web`, and the pod has no such container: write one of app",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("Wrap"),
            "auto, wrap, signal",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/readiness"] = json!("always"),
            "auto, holder, queued",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/access"] = json!("rw"),
            "write, read",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/contaner"] = json!("app"),
            "the keys are",
        ),
        (
            |pod| pod["spec"]["hostPID"] = json!(true),
            "remove spec.hostPID or lockkeeper.io/lock",
        ),
        (
            |pod| pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 9808 }]),
            "move it to another port",
        ),
    ];
    for (edit, part) in cases {
        let mut pod = marked("bad");
        edit(&mut pod);
        let refusal = space.try_out(&pod).await.expect_err(part);
        let sentence = refusal
            .strip_prefix("admission webhook \"pods.lockkeeper.io\" denied the request: Lockkeeper: ")
            .unwrap_or_else(|| panic!("{refusal}"));
        assert!(
            sentence.contains(part) && !sentence.contains('\n'),
            "{part:?} is not in {sentence:?}"
        );
    }
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_on_a_workload_is_refused_at_once_and_not_with_its_pods() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("wrong").await;
    let keys = json!({ "lockkeeper.io/lock": "report", "lockkeeper.io/guard": "no" });
    let said = webhooks.kubectl(
        &space,
        &["create", "-f", "-"],
        &workload("Deployment", "report", keys),
    );
    assert!(
        !said.is_done && said.words.contains("auto, wrap, signal"),
        "{}",
        said.words
    );
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_injected_for_another_lock_is_refused() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("copied").await;
    let pod = space.try_out(&marked("original")).await.unwrap();
    let mut copy = json!({ "metadata": { "name": "copy" }, "spec": pod["spec"] });
    copy["metadata"]["annotations"] = pod["metadata"]["annotations"].clone();
    copy["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("other");
    let refusal = space.try_out(&copy).await.unwrap_err();
    assert!(
        refusal.contains("the pod is a copy of one that was injected for another lock")
            && refusal.contains("make it from the manifest that was there before"),
        "{refusal}"
    );
    space.leave().await;
}
