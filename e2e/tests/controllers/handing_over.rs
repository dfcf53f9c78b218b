//! The lock changes hands at the request of a user, and during a rollout.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_product::beside::conditions::{condition, holders, waiting};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_product::binaries;
use lockkeeper_testbed::eventually::eventually;
use serde_json::json;

use crate::contender::Contender;
use crate::environment::{alone, shared};
use crate::killed::Gated;

#[tokio::test(flavor = "multi_thread")]
async fn a_user_hands_over_by_an_annotation_which_goes_when_it_was_heard() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("asked").await;
    let contenders = queue(&environment, &space, &["a", "b", "c"]).await;
    space.annotate("report", "lockkeeper.io/handoff", "c").await;
    space
        .wait_for_lock("report", "c holds, and the annotation is gone", |lock| {
            holders(lock) == ["c"] && !lock.annotations().contains_key("lockkeeper.io/handoff")
        })
        .await;
    space.wait_for_role("c", "active").await;

    // The same by the plugin, which needs only a kubeconfig.
    let plugin = binaries::plugin().unwrap();
    let kubectl = |arguments: &[&str]| {
        let output = std::process::Command::new(&plugin)
            .args(arguments)
            .args(["--namespace", &space.name, "--kubeconfig"])
            .arg(environment.cluster.kubeconfig())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let (done, text, error) = kubectl(&["handoff", "report", "--to", "b"]);
    assert!(done, "{error}");
    assert!(text.contains("holds   b "), "{text}");
    let (done, text, _) = kubectl(&["why", "b"]);
    assert!(done && text.starts_with("b holds report under token"), "{text}");
    let (_, text, _) = kubectl(&["list"]);
    assert!(text.lines().any(|line| line.starts_with("report   b ")), "{text}");
    let (done, _, error) = kubectl(&["handoff", "report", "--to", "b"]);
    assert!(!done && error.contains("b holds report already"), "{error}");
    let (_, text, _) = kubectl(&["history", "report"]);
    let holds: Vec<Vec<_>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let told = holds.iter().map(|words| (words[0], *words.last().unwrap()));
    let expected = [
        ("POD", "ENDED"),
        ("b", "holds"),
        ("c", "HandedOver"),
        ("a", "HandedOver"),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected, "{text}");
    let (_, json, _) = kubectl(&["history", "report", "-o", "json"]);
    let holds: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&holds["holders"][0]["pod"], &holds["history"][0]["pod"]),
        (&json!("b"), &json!("c"))
    );
    let (_, json, _) = kubectl(&["status", "report", "-o", "json"]);
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(status["status"]["holders"][0]["pod"], "b");

    // A workload that was annotated before the installation has pods without the mark.
    let mut early = deployment(0, "1");
    early.metadata.annotations = Some([("lockkeeper.io/lock".to_owned(), "early".to_owned())].into());
    early
        .spec
        .as_mut()
        .unwrap()
        .template
        .metadata
        .as_mut()
        .unwrap()
        .labels = Some([("app".to_owned(), "report".to_owned())].into());
    let early = space
        .api::<Deployment>()
        .create(&PostParams::default(), &early)
        .await
        .unwrap();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "unmarked", "ownerReferences": [early.controller_owner_ref(&()).unwrap()]},
        "spec": {"schedulerName": "none", "containers": [{"name": "app", "image": "none"}]},
    });
    let pods = space.api::<Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
    let (_, text, _) = kubectl(&["why", "unmarked"]);
    assert!(
        text.contains("runs WITHOUT the lock early that deployment/report names"),
        "{text}"
    );

    space.annotate("report", "lockkeeper.io/handoff", "nobody").await;
    let note = space.wait_for_note("report", "HandoffRefused", "nobody ").await;
    assert_eq!(note, "nobody does not wait for the lock");
    for contender in contenders {
        contender.leave().await;
    }
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_is_one_handoff_though_the_operator_hears_late_of_its_own_answer() {
    let Some(environment) = alone().await else { return };
    let connection = environment.connection().await;
    let leader = Gated::replacing(&environment, &connection, "late-answer").await;
    let space = environment.namespace("once").await;
    let contenders = queue(&environment, &space, &["a", "b", "c"]).await;

    let annotation = "distributedlocks/report?";
    leader.gate.hold(&space.name, annotation);
    space.annotate("report", "lockkeeper.io/handoff", "").await;
    leader.gate.met(&space.name).await;
    // The holder was asked, and the annotation is about to go.
    leader.gate.hold_watch("/distributedlocks?");
    leader.gate.open(&space.name);
    space.wait_for_role("b", "active").await;
    leader.gate.open_watches();

    space.annotate("report", "lockkeeper.io/handoff", "nobody").await;
    space.wait_for_note("report", "HandoffRefused", "nobody ").await;
    space
        .wait_for_lock("report", "b holds, and was asked for nothing", |lock| {
            holders(lock) == ["b"] && waiting(lock) == ["c", "a"]
        })
        .await;
    let writes = leader.gate.writes(&space.name);
    let acknowledged = writes.iter().filter(|write| write.contains(annotation));
    assert_eq!(acknowledged.count(), 2, "{writes:#?}");
    for contender in contenders {
        contender.leave().await;
    }
    space.leave().await;
    environment.put_operator(environment.operator("operator-once", &[]).await);
}

/// Makes the lock `report` and these pods, which queue in this order.
async fn queue(environment: &Environment, space: &Tenant, names: &[&str]) -> Vec<Contender> {
    space.lock("report", DistributedLockSpec::default()).await;
    let mut contenders = Vec::new();
    for name in names {
        let pod = space.pod(name, "report").await;
        contenders.push(Contender::join(environment, space, "report", &pod).await);
        space
            .wait_for_lock("report", "it is in the queue", |lock| {
                holders(lock).iter().chain(&waiting(lock)).any(|pod| pod == name)
            })
            .await;
    }
    contenders
}

fn deployment(replicas: i32, version: &str) -> Deployment {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "report"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "report"}},
            // As with ready standbys: a new pod comes before an old one ends.
            "strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "report", "lockkeeper.io/lock": "report"}},
                "spec": {
                    "schedulerName": "none",
                    "containers": [{"name": "app", "image": version, "command": ["/lockkeeper/lockkeeper"]}],
                },
            },
        },
    }))
    .unwrap()
}

/// Makes the lock `report`, and a Deployment of the first version behind it.
async fn deployed(space: &Tenant) -> Api<Deployment> {
    space.lock("report", DistributedLockSpec::default()).await;
    let deployments = space.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &deployment(1, "v1"))
        .await
        .unwrap();
    deployments
}

fn image(version: &str) -> serde_json::Value {
    json!({"spec": {"template": {"spec": {"containers": [
        {"name": "app", "image": version, "command": ["/lockkeeper/lockkeeper"]},
    ]}}}})
}

/// The pods of each revision, by name.
async fn pods(space: &Tenant, count: usize) -> BTreeMap<String, Vec<Pod>> {
    let api = space.api::<Pod>();
    eventually("the pods of the Deployment", async || {
        let pods = api.list(&ListParams::default()).await.unwrap().items;
        let mut revisions = BTreeMap::<String, Vec<Pod>>::new();
        let found = pods.len();
        for pod in pods {
            let image = pod.spec.as_ref()?.containers[0].image.clone()?;
            revisions.entry(image).or_default().push(pod);
        }
        (found == count).then_some(revisions)
    })
    .await
}

/// Writes into the status of a pod that its containers run, as its kubelet would.
async fn containers_run(space: &Tenant, pod: &Pod) {
    containers_run_after(space, pod, 0).await;
}

/// The same, after the application's container has ended this often.
async fn containers_run_after(space: &Tenant, pod: &Pod, ends: i32) {
    let container = |name: &str, restarts: i32| {
        json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": restarts,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
    };
    let patch = json!({"status": {
        "phase": "Running",
        "initContainerStatuses": [container("lockkeeper", 0)],
        "containerStatuses": [container("app", ends)],
    }});
    let api = space.api::<Pod>();
    api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_moves_the_lock_to_the_new_revision_and_a_rollback_moves_it_back_once() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("rollout").await;
    let deployments = deployed(&space).await;
    let old = pods(&space, 1).await["v1"][0].clone();
    let mut contenders = vec![Contender::join(&environment, &space, "report", &old).await];
    containers_run(&space, &old).await;
    let old = old.name_any();
    space
        .wait_for_lock("report", "the old pod holds", |lock| {
            holders(lock) == [old.as_str()]
        })
        .await;

    // While the Deployment is paused, a waiting new pod changes nothing. (It was made before the pause.)
    let apply = async |patch: serde_json::Value| {
        deployments
            .patch("report", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    };
    apply(image("v2")).await;
    let new = pods(&space, 2).await["v2"][0].clone();
    apply(json!({"spec": {"paused": true}})).await;
    contenders.push(Contender::join(&environment, &space, "report", &new).await);
    containers_run(&space, &new).await;
    let new = new.name_any();
    let lock = space
        .wait_for_lock("report", "the new pod waits", |lock| {
            waiting(lock) == [new.as_str()]
        })
        .await;
    assert_eq!(holders(&lock), [old.as_str()]);

    // After it is resumed, the operator looks again by itself.
    apply(json!({"spec": {"paused": false}})).await;
    space
        .wait_for_lock("report", "the new pod holds", |lock| {
            holders(lock) == [new.as_str()]
        })
        .await;
    let note = space.wait_for_event("report", "HandoffRequested").await;
    assert!(note.contains(&new), "{note}");
    space.wait_for_role(&new, "active").await;

    // Rolled back: v1 is the current revision again.
    apply(image("v1")).await;
    space
        .wait_for_lock("report", "a pod of v1 holds again", |lock| {
            holders(lock) == [old.as_str()]
        })
        .await;
    for contender in contenders {
        contender.leave().await;
    }
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_whose_application_ended_under_the_lock_does_not_get_it_again_but_the_next_one_does() {
    let Some(environment) = alone().await else { return };
    let space = environment.namespace("failing").await;
    let deployments = deployed(&space).await;
    let roll_out = async |version: &str| {
        deployments
            .patch("report", &PatchParams::default(), &Patch::Merge(image(version)))
            .await
            .unwrap();
    };
    let first = pods(&space, 1).await["v1"][0].clone();
    let former = Contender::join(&environment, &space, "report", &first).await;
    containers_run(&space, &first).await;
    // Ready, so that its Deployment keeps it, and replaces the second one by the third.
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let api = space.api::<Pod>();
    api.patch_status(
        &first.name_any(),
        &PatchParams::default(),
        &Patch::Strategic(ready),
    )
    .await
    .unwrap();
    let first = first.name_any();
    let is_with = async |pod: &str| {
        space
            .wait_for_lock("report", "this pod holds", |lock| holders(lock) == [pod])
            .await
    };
    is_with(&first).await;

    roll_out("v2").await;
    let second = pods(&space, 2).await["v2"][0].clone();
    let guarded = Contender::join(&environment, &space, "report", &second).await;
    containers_run(&space, &second).await;
    is_with(&second.name_any()).await;
    // Its application ends, and the kubelet restarts its container.
    guarded.leave().await;
    containers_run_after(&space, &second, 1).await;
    let guarded = Contender::join(&environment, &space, "report", &second).await;
    let second = second.name_any();
    space
        .wait_for_lock("report", "the lock stays with the first pod", |lock| {
            let is_held_back = condition(lock, "Ready") == ("True".into(), "HandoffHeldBack".into());
            is_held_back && holders(lock) == [first.as_str()] && waiting(lock) == [second.as_str()]
        })
        .await;
    let note = space.wait_for_event("report", "HandoffHeldBack").await;
    assert!(note.contains(&second) && note.contains("roll back"), "{note}");

    // Another operator reads it from the status.
    drop(environment.take_operator());
    let operator = environment.operator("operator-after", &[]).await;
    space.annotate("report", "lockkeeper.io/handoff", "nobody").await;
    space.wait_for_event("report", "HandoffRefused").await;
    roll_out("v3").await;
    let third = eventually("the pod of the third revision", async || {
        let pods = space
            .api::<Pod>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        let is_third = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("v3");
        pods.into_iter().find(is_third)
    })
    .await;
    guarded.leave().await;
    let latter = Contender::join(&environment, &space, "report", &third).await;
    containers_run(&space, &third).await;
    let lock = is_with(&third.name_any()).await;
    assert_eq!(condition(&lock, "Ready").1, "Provisioned");
    let metrics = operator.pages.ask("/metrics").await.unwrap();
    let handoffs = "lockkeeper_operator_handoffs_total{cause=\"rollout\"} 1";
    assert!(
        metrics.contains(handoffs),
        "to the third revision alone: {metrics}"
    );
    environment.put_operator(operator);
    former.leave().await;
    latter.leave().await;
    space.leave().await;
}
