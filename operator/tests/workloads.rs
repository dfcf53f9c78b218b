//! Keys of a workload reach its pods, and leave them with it.

use lockkeeper_crds::keys::Readiness;
use lockkeeper_operator::admission::webhook::workloads::{advise, copy};
use serde_json::{Value, json};

fn deployment(annotations: Value, template: Value) -> Value {
    json!({ "metadata": { "name": "report", "annotations": annotations },
            "spec": { "replicas": 1, "template": { "metadata": template, "spec": { "containers": [] } } } })
}

/// The object after the webhook.
fn copied(kind: &str, object: &Value) -> Value {
    copy(kind, object, true)
        .unwrap()
        .object
        .unwrap_or_else(|| object.clone())
}

#[test]
fn annotating_a_deployment_is_enough_and_removing_the_annotation_takes_everything_back() {
    let plain = deployment(json!({}), json!({ "labels": { "app": "report" } }));
    let mut marked = plain.clone();
    marked["metadata"]["annotations"] =
        json!({ "lockkeeper.io/lock": "report", "lockkeeper.io/readiness": "queued" });
    let first = copied("Deployment", &marked);
    let metadata = &first["spec"]["template"]["metadata"];
    assert_eq!(metadata["annotations"]["lockkeeper.io/lock"], "report");
    assert_eq!(metadata["annotations"]["lockkeeper.io/readiness"], "queued");
    assert_eq!(
        metadata["labels"],
        json!({ "app": "report", "lockkeeper.io/lock": "report" })
    );
    // A second pass, as after any update, changes nothing: no rollout for nothing.
    assert_eq!(copy("Deployment", &first, false).unwrap().object, None);

    let mut changed = first.clone();
    changed["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("other");
    let template = copied("Deployment", &changed)["spec"]["template"]["metadata"].clone();
    assert_eq!(template["labels"]["lockkeeper.io/lock"], "other");

    let mut unmarked = first;
    unmarked["metadata"]["annotations"] = json!({});
    assert_eq!(copied("Deployment", &unmarked), plain);
}

#[test]
fn what_a_user_wrote_into_the_template_stays_and_a_difference_is_told() {
    let template = json!({ "annotations": { "lockkeeper.io/lock": "mine" } });
    let own = deployment(json!({}), template.clone());
    assert_eq!(copied("Deployment", &own), own);
    let both = deployment(json!({ "lockkeeper.io/lock": "other" }), template);
    let answer = copy("Deployment", &both, false).unwrap();
    assert_eq!(answer.object, None);
    assert_eq!(answer.request.unwrap().lock, "mine");
    assert!(
        answer.warnings[0].contains("the template's counts"),
        "{:?}",
        answer.warnings
    );
}

#[test]
fn a_workload_without_our_keys_is_left_alone() {
    for kind in ["Deployment", "ReplicaSet", "Unheard"] {
        let object = deployment(json!({ "note": "x" }), json!({}));
        let answer = copy(kind, &object, true).unwrap();
        assert_eq!((answer.object, answer.request), (None, None), "{kind}");
    }
}

#[test]
fn all_kinds_of_workloads_pass_their_keys_on() {
    for kind in ["Deployment", "StatefulSet", "DaemonSet", "Job"] {
        let object = deployment(json!({ "lockkeeper.io/lock": "report" }), json!(null));
        let metadata = &copied(kind, &object)["spec"]["template"]["metadata"];
        assert_eq!(metadata["labels"]["lockkeeper.io/lock"], "report", "{kind}");
    }
    let job = deployment(json!({}), json!({}));
    let cron = json!({ "metadata": { "labels": { "lockkeeper.io/lock": "report" } },
                       "spec": { "jobTemplate": { "spec": job["spec"] } } });
    let template = copied("CronJob", &cron)["spec"]["jobTemplate"]["spec"]["template"].clone();
    assert_eq!(
        template["metadata"]["annotations"]["lockkeeper.io/lock"],
        "report"
    );
}

#[test]
fn the_container_that_the_user_put_first_is_written_down_before_a_mesh_puts_its_own_there() {
    let mut object = deployment(json!({ "lockkeeper.io/lock": "report" }), json!({}));
    let containers = |names: &[&str]| {
        names
            .iter()
            .map(|name| json!({ "name": name }))
            .collect::<Value>()
    };
    object["spec"]["template"]["spec"]["containers"] = containers(&["app", "shipper"]);
    let answer = copy("Deployment", &object, true).unwrap();
    let written = answer.object.unwrap();
    let named = |object: &Value| {
        object["spec"]["template"]["metadata"]["annotations"]["lockkeeper.io/container"].clone()
    };
    assert_eq!(named(&written), "app");
    assert!(
        answer.warnings[0].contains("several containers"),
        "{:?}",
        answer.warnings
    );
    // Once: not at each change.
    let again = copy("Deployment", &written, false).unwrap();
    assert_eq!((again.object, again.warnings), (None, vec![]));

    // The first one is another one now, or a user names one, here or there.
    let mut renamed = written.clone();
    renamed["spec"]["template"]["spec"]["containers"] = containers(&["web", "shipper"]);
    assert_eq!(named(&copied("Deployment", &renamed)), "web");
    let mut by_template = written.clone();
    by_template["spec"]["template"]["metadata"]["annotations"]["lockkeeper.io/container"] = json!("shipper");
    let by_template = copied("Deployment", &by_template);
    assert_eq!(named(&by_template), "shipper");
    assert_eq!(copy("Deployment", &by_template, false).unwrap().object, None);
    let mut by_workload = written.clone();
    by_workload["metadata"]["annotations"]["lockkeeper.io/container"] = json!("shipper");
    let mut by_workload = copied("Deployment", &by_workload);
    assert_eq!(named(&by_workload), "shipper");
    by_workload["metadata"]["annotations"] = json!({ "lockkeeper.io/lock": "report" });
    assert_eq!(named(&copied("Deployment", &by_workload)), "app");
    let mut by_kubectl = object.clone();
    by_kubectl["spec"]["template"]["metadata"]["annotations"] =
        json!({ "kubectl.kubernetes.io/default-container": "shipper" });
    let answer = copy("Deployment", &by_kubectl, true).unwrap();
    assert_eq!(named(&answer.object.unwrap()), "shipper");
    assert_eq!(answer.warnings, [""; 0]);

    // It goes with the lock, also from a template that names the lock itself.
    let mut unmarked = written.clone();
    unmarked["metadata"]["annotations"] = json!({});
    let mut plain = object.clone();
    plain["metadata"]["annotations"] = json!({});
    assert_eq!(copied("Deployment", &unmarked), plain);
    let mut own = plain.clone();
    own["spec"]["template"]["metadata"]["annotations"] = json!({ "lockkeeper.io/lock": "report" });
    let mut own = copied("Deployment", &own);
    assert_eq!(named(&own), "app");
    let annotations = own["spec"]["template"]["metadata"]["annotations"]
        .as_object_mut()
        .unwrap();
    annotations.remove("lockkeeper.io/lock");
    assert_eq!(copied("Deployment", &own), plain);
}

#[test]
fn a_template_whose_first_container_is_the_proxy_of_a_mesh_is_warned_of() {
    let mut object = deployment(json!({ "lockkeeper.io/lock": "report" }), json!({}));
    object["spec"]["template"]["spec"]["containers"] = json!([{ "name": "istio-proxy" }, { "name": "app" }]);
    let answer = copy("Deployment", &object, true).unwrap();
    let warning = answer.warnings.join("\n");
    assert!(
        warning.contains("`istio-proxy` is the proxy of a mesh") && warning.contains("will be refused"),
        "{warning}"
    );
}

#[test]
fn a_job_that_exists_keeps_its_template_and_the_user_is_told() {
    let job = deployment(json!({ "lockkeeper.io/lock": "report" }), json!({}));
    let answer = copy("Job", &job, false).unwrap();
    assert_eq!(answer.object, None);
    assert!(
        answer.warnings[0].contains("cannot change"),
        "{:?}",
        answer.warnings
    );
}

#[test]
fn a_workload_that_is_being_deleted_is_let_go_whatever_it_says() {
    let mut object = deployment(json!({ "lockkeeper.io/lock": "NO" }), json!({}));
    assert!(copy("Deployment", &object, false).is_err());
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let answer = copy("Deployment", &object, false).unwrap();
    assert_eq!((answer.object, answer.request), (None, None));
}

#[test]
fn a_wrong_key_is_refused_on_the_workload_already() {
    let wrong = deployment(
        json!({ "lockkeeper.io/lock": "a", "lockkeeper.io/guard": "no" }),
        json!({}),
    );
    let refusal = copy("Deployment", &wrong, true).unwrap_err().to_string();
    assert!(refusal.contains("auto, wrap, signal"), "{refusal}");
}

#[test]
fn dangerous_combinations_are_warned_about() {
    let warnings = |object: &Value, has_ensemble| {
        let request = copy("Deployment", object, true).unwrap().request.unwrap();
        advise("Deployment", object, &request, None, has_ensemble).join("\n")
    };
    let mut object = deployment(
        json!({ "lockkeeper.io/lock": "report", "lockkeeper.io/readiness": "holder" }),
        json!({}),
    );
    assert_eq!(warnings(&object, true), "");
    object["spec"]["replicas"] = json!(3);
    assert!(warnings(&object, true).contains("rollouts stop"));
    object["spec"]["template"]["spec"]["hostPID"] = json!(true);
    assert!(warnings(&object, true).contains("hostPID"));
    assert!(warnings(&object, false).contains("spec.zookeeper.connect"));
    let request = copy("Deployment", &object, true).unwrap().request.unwrap();
    assert_eq!(request.readiness, Readiness::Holder);
    object["spec"]["template"]["spec"]["containers"] =
        json!([{ "name": "app", "resources": { "limits": { "cpu": "250m" } } }]);
    assert!(warnings(&object, true).contains("shares its CPU limit of 250m"));
}
