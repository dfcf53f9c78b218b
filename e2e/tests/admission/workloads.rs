//! `kubectl annotate` on a workload reaches its pods, and removing the annotation leaves nothing behind.

use lockkeeper_product::beside::Tenant;
use serde_json::{Value, json};

use crate::pods::workload;
use crate::webhooks::{Webhooks, shared};

const LOCK: &str = "lockkeeper.io/lock";

/// The metadata of a workload's pod template.
fn template(webhooks: &Webhooks, space: &Tenant, kind: &str) -> Value {
    let said = webhooks.kubectl(space, &["get", kind, "report", "-o", "json"], &Value::Null);
    assert!(said.is_done, "{}", said.words);
    let object: Value = serde_json::from_str(&said.output).unwrap();
    let path = match kind {
        "CronJob" => "/spec/jobTemplate/spec/template/metadata",
        _ => "/spec/template/metadata",
    };
    object.pointer(path).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn annotating_any_workload_marks_its_pods_and_removing_the_annotation_unmarks_them() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("workloads").await;
    for kind in ["Deployment", "StatefulSet", "DaemonSet", "CronJob"] {
        // Allow its pods to run meanwhile; here none does.
        let object = workload(kind, "report", json!({ "lockkeeper.io/allow-overlap": "true" }));
        let said = webhooks.kubectl(&space, &["create", "-f", "-"], &object);
        assert!(said.is_done && said.words.is_empty(), "{kind}: {}", said.words);
        let before = template(&webhooks, &space, kind);

        let keys = ["lockkeeper.io/lock=report", "lockkeeper.io/readiness=queued"];
        let said = webhooks.kubectl(
            &space,
            &[&["annotate", kind, "report"], &keys[..]].concat(),
            &Value::Null,
        );
        assert!(said.is_done && said.words.is_empty(), "{kind}: {}", said.words);
        let marked = template(&webhooks, &space, kind);
        assert_eq!(marked["annotations"][LOCK], "report", "{kind}");
        assert_eq!(marked["annotations"]["lockkeeper.io/container"], "app", "{kind}");
        assert_eq!(
            marked["annotations"]["lockkeeper.io/readiness"], "queued",
            "{kind}"
        );
        assert_eq!(
            marked["labels"],
            json!({ "app": "report", LOCK: "report" }),
            "{kind}"
        );

        let gone = ["lockkeeper.io/lock-", "lockkeeper.io/readiness-"];
        let said = webhooks.kubectl(
            &space,
            &[&["annotate", kind, "report"], &gone[..]].concat(),
            &Value::Null,
        );
        assert!(said.is_done, "{kind}: {}", said.words);
        assert_eq!(template(&webhooks, &space, kind), before, "{kind}");
    }
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_made_with_the_annotation_is_marked_and_one_that_exists_says_that_it_cannot() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("jobs").await;
    let object = workload("Job", "report", json!({ LOCK: "report" }));
    let said = webhooks.kubectl(&space, &["create", "-f", "-"], &object);
    assert!(said.is_done, "{}", said.words);
    assert_eq!(template(&webhooks, &space, "Job")["labels"][LOCK], "report");
    let key = "lockkeeper.io/readiness=holder";
    let said = webhooks.kubectl(&space, &["annotate", "Job", "report", key], &Value::Null);
    assert!(said.is_done, "{}", said.words);
    assert!(
        said.words.contains("the pod template of a Job cannot change"),
        "{}",
        said.words
    );
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_applies_again_and_again_changes_nothing_and_starts_no_rollout() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("again").await;
    let object = workload("Deployment", "report", json!({ LOCK: "report" }));
    let generation = || {
        let arguments = [
            "get",
            "deployment",
            "report",
            "-o",
            "jsonpath={.metadata.generation}",
        ];
        webhooks.kubectl(&space, &arguments, &Value::Null).output
    };
    for arguments in [
        &["apply", "-f", "-"][..],
        &["apply", "-f", "-"],
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
        &["apply", "--server-side", "-f", "-"],
    ] {
        let said = webhooks.kubectl(&space, arguments, &object);
        assert!(said.is_done, "{}", said.words);
        assert_eq!(generation(), "1", "{arguments:?}");
        assert_eq!(
            template(&webhooks, &space, "Deployment")["labels"][LOCK],
            "report"
        );
    }
    let unmarked = workload(
        "Deployment",
        "report",
        json!({ "lockkeeper.io/allow-overlap": "true" }),
    );
    let said = webhooks.kubectl(&space, &["apply", "--server-side", "-f", "-"], &unmarked);
    assert!(said.is_done, "{}", said.words);
    let template = template(&webhooks, &space, "Deployment");
    assert_eq!(template["labels"], json!({ "app": "report" }));
    assert_eq!(template["annotations"], Value::Null);
    space.abandon().await;
}
