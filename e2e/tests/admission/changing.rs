//! Changes of a workload's lock that are refused, with and without the webhooks.

use lockkeeper_product::beside::Tenant;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::nodes::{NEW, Node};
use crate::pods::workload;
use crate::webhooks::{Webhooks, alone, shared};
use lockkeeper_product::chart::Said;

const LOCK: &str = "lockkeeper.io/lock";

fn annotate(webhooks: &Webhooks, space: &Tenant, kind: &str, keys: &[&str]) -> Said {
    let arguments = [&["annotate", "--overwrite", kind, "report"], keys].concat();
    webhooks.kubectl(space, &arguments, &Value::Null)
}

fn assert_overlaps(said: &Said, part: &str) {
    let sentence =
        format!("would change {part} while its pods run, and new pods would run beside old ones: ");
    assert!(!said.is_done && said.words.contains(&sentence), "{}", said.words);
}

/// Scales the Deployment, and waits until its controller has done so.
async fn scale(webhooks: &Webhooks, space: &Tenant, replicas: &str) {
    let scale = ["scale", "deployment", "report", "--replicas", replicas];
    let said = webhooks.kubectl(space, &scale, &Value::Null);
    assert!(said.is_done, "{}", said.words);
    eventually("its controller has counted", async || {
        let count = [
            "get",
            "deployment",
            "report",
            "--output=jsonpath={.status.replicas}",
        ];
        let count = webhooks.kubectl(space, &count, &Value::Null).output;
        (count == replicas || (count.is_empty() && replicas == "0")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_enters_changes_and_leaves_a_lock_only_when_its_pods_do_not_overlap() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("changing").await;
    let create = ["create", "--filename=-"];
    let said = webhooks.kubectl(&space, &create, &workload("Deployment", "report", json!({})));
    assert!(said.is_done, "{}", said.words);
    scale(&webhooks, &space, "1").await;
    let said = annotate(&webhooks, &space, "deployment", &["lockkeeper.io/lock=report"]);
    assert_overlaps(&said, "from none to report");
    // Other changes are admitted.
    assert!(annotate(&webhooks, &space, "deployment", &["example.com/note=1"]).is_done);
    scale(&webhooks, &space, "0").await;
    let said = annotate(&webhooks, &space, "deployment", &["lockkeeper.io/lock=report"]);
    assert!(said.is_done, "{}", said.words);
    scale(&webhooks, &space, "1").await;
    let said = annotate(&webhooks, &space, "deployment", &["lockkeeper.io/lock=other"]);
    assert_overlaps(&said, "from report to other");
    let said = annotate(&webhooks, &space, "deployment", &["lockkeeper.io/lock-"]);
    assert_overlaps(&said, "from report to none");
    let said = webhooks.kubectl(&space, &["rollout", "undo", "deployment", "report"], &Value::Null);
    assert_overlaps(&said, "from report to none");

    // A paused Deployment makes its next pods from the former template.
    scale(&webhooks, &space, "0").await;
    assert!(
        webhooks
            .kubectl(
                &space,
                &["rollout", "pause", "deployment", "report"],
                &Value::Null
            )
            .is_done
    );
    let said = annotate(&webhooks, &space, "deployment", &["lockkeeper.io/lock=other"]);
    assert_overlaps(&said, "from report to other");
    assert!(said.words.contains("resume it (spec.paused)"), "{}", said.words);
    assert!(
        webhooks
            .kubectl(
                &space,
                &["rollout", "resume", "deployment", "report"],
                &Value::Null
            )
            .is_done
    );
    scale(&webhooks, &space, "1").await;
    // A Deployment with `allow-overlap` may leave its lock while its pods run.
    let keys = ["lockkeeper.io/lock-", "lockkeeper.io/allow-overlap=true"];
    let said = annotate(&webhooks, &space, "deployment", &keys);
    assert!(said.is_done, "{}", said.words);
    space.abandon().await;
}

/// Replaces parts of the workload.
fn patch(webhooks: &Webhooks, space: &Tenant, kind: &str, spec: Value) -> Said {
    let spec = json!({ "spec": spec }).to_string();
    webhooks.kubectl(space, &["patch", kind, "report", "--patch", &spec], &Value::Null)
}

/// Waits until the one pod of the workload is there, and returns its name.
async fn pod_of(webhooks: &Webhooks, space: &Tenant) -> String {
    let names = ["get", "pods", "--selector=app=report", "--output=name"];
    eventually("it has a pod", async || {
        let name = webhooks.kubectl(space, &names, &Value::Null).output;
        (name.lines().count() == 1).then(|| name.trim().to_owned())
    })
    .await
}

/// Puts it on a node without a kubelet, so that it ends when the test says so. Of a pod without a node, the collector of pods
/// says within 20 s that it has failed (`gcUnscheduledTerminating`), and then no controller waits for it.
fn place<'a>(webhooks: &Webhooks, space: &'a Tenant, pod: &str) -> Node<'a> {
    let name = pod.trim_start_matches("pod/");
    let node = Node::new(webhooks.cluster, &space.name, NEW);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": space.name },
    });
    let at = format!("/api/v1/namespaces/{}/pods/{name}/binding", space.name);
    let said = webhooks.kubectl(space, &["create", "--raw", &at, "--filename=-"], &binding);
    assert!(said.is_done, "{}", said.words);
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_does_not_leave_recreate_while_a_pod_with_its_lock_before_still_ends() {
    // Alone, since the operators of other tests read the nodes, too.
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("recreating").await;
    let mut object = workload("Deployment", "report", json!({ LOCK: "report" }));
    object["spec"]["strategy"] = json!({ "type": "Recreate" });
    let said = webhooks.kubectl(&space, &["create", "--filename=-"], &object);
    assert!(said.is_done, "{}", said.words);
    let pod = pod_of(&webhooks, &space).await;
    let node = place(&webhooks, &space, &pod);
    let said = annotate(&webhooks, &space, "deployment", &["lockkeeper.io/lock=other"]);
    assert!(said.is_done, "{}", said.words);
    // Afterwards nothing would show that it was behind a lock, so the policy could not see it leave Recreate.
    let said = annotate(&webhooks, &space, "deployment", &["lockkeeper.io/lock-"]);
    assert_overlaps(&said, "from other to none");

    let ends = ["get", &pod, "--output=jsonpath={.metadata.deletionTimestamp}"];
    eventually("the pod ends", async || {
        (!webhooks.kubectl(&space, &ends, &Value::Null).output.is_empty()).then_some(())
    })
    .await;
    let rolling = json!({ "strategy": { "type": "RollingUpdate" } });
    let said = patch(&webhooks, &space, "deployment", rolling.clone());
    let sentence =
        "this Deployment would leave the strategy Recreate while pods of an older template may be left";
    assert!(!said.is_done && said.words.contains(sentence), "{}", said.words);
    let said = patch(&webhooks, &space, "deployment", json!({ "paused": true }));
    assert!(
        !said.is_done && said.words.contains("this Deployment would be paused while"),
        "{}",
        said.words
    );
    let end = ["delete", &pod, "--force", "--grace-period=0"];
    assert!(webhooks.kubectl(&space, &end, &Value::Null).is_done);
    eventually("its new pod is there, and it may roll again", async || {
        patch(&webhooks, &space, "deployment", rolling.clone())
            .is_done
            .then_some(())
    })
    .await;
    assert_ne!(pod_of(&webhooks, &space).await, pod);
    drop(node);
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statefulset_changes_its_lock_at_zero_and_where_all_its_pods_get_the_new_one() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("ordered").await;
    let mut object = workload("StatefulSet", "report", json!({ LOCK: "report" }));
    object["spec"]["updateStrategy"] = json!({ "type": "OnDelete" });
    let said = webhooks.kubectl(&space, &["create", "--filename=-"], &object);
    assert!(said.is_done, "{}", said.words);
    pod_of(&webhooks, &space).await;
    // Its first pod would stay as it is, beside the second one.
    for (key, part) in [
        ("lockkeeper.io/lock-", "none"),
        ("lockkeeper.io/lock=other", "other"),
    ] {
        let said = annotate(&webhooks, &space, "statefulset", &[key]);
        assert_overlaps(&said, &format!("from report to {part}"));
        assert!(
            said.words
                .contains("set spec.updateStrategy.type to RollingUpdate without a partition"),
            "{}",
            said.words
        );
    }
    let strategy = |partition: u32| json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } });
    assert!(patch(&webhooks, &space, "statefulset", json!({ "replicas": 0 })).is_done);
    eventually(
        "it gets a partition, for nothing is left to be kept back",
        async || {
            patch(&webhooks, &space, "statefulset", strategy(1))
                .is_done
                .then_some(())
        },
    )
    .await;
    let pods = ["get", "pods", "--output=name"];
    eventually("its pod is gone", async || {
        webhooks
            .kubectl(&space, &pods, &Value::Null)
            .output
            .is_empty()
            .then_some(())
    })
    .await;
    // The first pod would be of the former revision, and the second one of the new revision.
    let said = annotate(&webhooks, &space, "statefulset", &["lockkeeper.io/lock=other"]);
    assert_overlaps(&said, "from report to other");
    assert!(patch(&webhooks, &space, "statefulset", strategy(0)).is_done);
    eventually("its lock changes", async || {
        annotate(&webhooks, &space, "statefulset", &["lockkeeper.io/lock=other"])
            .is_done
            .then_some(())
    })
    .await;
    // While its pods are of two revisions, a partition would use the older one.
    assert!(patch(&webhooks, &space, "statefulset", json!({ "replicas": 1 })).is_done);
    pod_of(&webhooks, &space).await;
    let image = json!({ "template": { "spec": { "containers": [{ "name": "app", "image": "y" }] } } });
    assert!(patch(&webhooks, &space, "statefulset", image).is_done);
    let said = patch(&webhooks, &space, "statefulset", strategy(1));
    let sentence = "this StatefulSet would raise its partition while pods of an older template may be left";
    assert!(!said.is_done && said.words.contains(sentence), "{}", said.words);
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemonset_does_not_change_its_lock_while_a_pod_is_left_where_none_should_run() {
    // Alone, since the operators of other tests read the nodes, too.
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("misscheduled").await;
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "tainted", "labels": { "example.com/only": "this" } } });
    let said = webhooks.kubectl(&space, &["create", "--filename=-"], &node);
    assert!(said.is_done, "{}", said.words);
    let mut object = workload("DaemonSet", "report", json!({}));
    // The node has no kubelet, so the API server taints it (admission plug-in `TaintNodesByCondition`).
    let no_kubelet = ["not-ready", "unreachable"];
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({ "example.com/only": "this" });
    object["spec"]["template"]["spec"]["tolerations"] = no_kubelet
        .map(|key| json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists" }))
        .into();
    let said = webhooks.kubectl(&space, &["create", "--filename=-"], &object);
    assert!(said.is_done, "{}", said.words);
    pod_of(&webhooks, &space).await;
    let taint = ["taint", "node", "tainted", "example.com/full=true:NoSchedule"];
    assert!(webhooks.kubectl(&space, &taint, &Value::Null).is_done);
    // Its controller counts again when the workload changes.
    assert!(annotate(&webhooks, &space, "daemonset", &["example.com/note=1"]).is_done);
    let numbers = [
        "get",
        "daemonset",
        "report",
        "--output=jsonpath={.status.currentNumberScheduled} {.status.numberMisscheduled}",
    ];
    eventually("its pod is where none should run", async || {
        (webhooks.kubectl(&space, &numbers, &Value::Null).output == "0 1").then_some(())
    })
    .await;
    let said = annotate(&webhooks, &space, "daemonset", &["lockkeeper.io/lock=report"]);
    assert_overlaps(&said, "from none to report");
    assert!(
        webhooks
            .kubectl(&space, &["delete", "node", "tainted"], &Value::Null)
            .is_done
    );
    eventually("no pod of it is left, and it gets its lock", async || {
        webhooks.kubectl(&space, &["delete", "pods", "--all"], &Value::Null);
        annotate(&webhooks, &space, "daemonset", &["lockkeeper.io/lock=report"])
            .is_done
            .then_some(())
    })
    .await;
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cronjob_does_not_leave_forbid_while_one_of_its_jobs_is_active() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("scheduled").await;
    let mut object = workload("CronJob", "report", json!({ LOCK: "report" }));
    object["spec"]["concurrencyPolicy"] = json!("Forbid");
    let said = webhooks.kubectl(&space, &["create", "--filename=-"], &object);
    assert!(said.is_done, "{}", said.words);
    // A Job as the CronJob's controller makes it on schedule.
    let run = [
        "create",
        "job",
        "report-1",
        "--from=cronjob/report",
        "--output=json",
    ];
    let run: Value = serde_json::from_str(&webhooks.kubectl(&space, &run, &Value::Null).output).unwrap();
    let active = json!([{ "apiVersion": "batch/v1", "kind": "Job", "namespace": space.name,
                          "name": "report-1", "uid": run["metadata"]["uid"] }]);
    let active = json!({ "status": { "active": active } }).to_string();
    let arguments = [
        "patch",
        "cronjob",
        "report",
        "--subresource=status",
        "--type=merge",
        "--patch",
        &active,
    ];
    let said = webhooks.kubectl(&space, &arguments, &Value::Null);
    assert!(said.is_done, "{}", said.words);
    let said = annotate(&webhooks, &space, "cronjob", &["lockkeeper.io/lock-"]);
    assert_overlaps(&said, "from report to none");
    let said = annotate(&webhooks, &space, "cronjob", &["lockkeeper.io/lock=other"]);
    assert!(said.is_done, "{}", said.words);
    let allow = json!({ "concurrencyPolicy": "Allow" });
    let said = patch(&webhooks, &space, "cronjob", allow);
    let sentence = "this CronJob would leave the concurrencyPolicy Forbid while";
    assert!(!said.is_done && said.words.contains(sentence), "{}", said.words);
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guarded_container_does_not_change_while_pods_run() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("container").await;
    let mut object = workload("Deployment", "report", json!({ LOCK: "report" }));
    let other = json!({ "name": "other", "image": "other:1", "command": ["/other"] });
    let containers = object["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .unwrap();
    containers.push(other);
    let said = webhooks.kubectl(&space, &["create", "--filename=-"], &object);
    assert!(
        said.is_done && said.words.contains("`app` runs under the lock"),
        "{}",
        said.words
    );
    let said = annotate(
        &webhooks,
        &space,
        "deployment",
        &["lockkeeper.io/container=other"],
    );
    assert_overlaps(&said, "from app to other");
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_does_not_reach_the_pods_of_a_workload_is_refused_where_no_webhook_is_asked() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.without_webhooks("unreached").await;
    for kind in ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"] {
        let create = |object: &Value| webhooks.kubectl(&space, &["create", "--filename=-"], object);
        let said = create(&workload(kind, "report", json!({ LOCK: "report" })));
        let sentence = format!("lockkeeper.io/lock on this {kind} has not reached its pod template");
        assert!(!said.is_done && said.words.contains(&sentence), "{}", said.words);
        let said = create(&workload(kind, "report", json!({})));
        assert!(said.is_done, "{}", said.words);
        let said = annotate(&webhooks, &space, kind, &["lockkeeper.io/lock=report"]);
        assert!(
            !said.is_done && said.words.contains("would run without the lock"),
            "{}",
            said.words
        );
    }
    space.abandon().await;
}
