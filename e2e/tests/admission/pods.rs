//! Objects that tests send to the API server.

use serde_json::{Value, json};

/// A pod that no scheduler handles, with one container that has a command.
pub fn plain(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "schedulerName": "none",
            "containers": [{ "name": "app", "image": "app:1", "command": ["/app"] }],
        },
    })
}

/// The same, with the annotation that asks for a lock.
pub fn marked(name: &str) -> Value {
    let mut pod = plain(name);
    pod["metadata"]["annotations"] = json!({ "lockkeeper.io/lock": "report" });
    pod
}

/// The same, with a command that only the image knows.
pub fn of_image(name: &str, image: &str) -> Value {
    let mut pod = marked(name);
    pod["spec"]["containers"][0] = json!({ "name": "app", "image": image });
    pod
}

/// A workload of `kind` with two labels that have to be preserved.
pub fn workload(kind: &str, name: &str, annotations: Value) -> Value {
    let labels = json!({ "app": name });
    let template = json!({ "metadata": { "labels": labels }, "spec": plain("x")["spec"] });
    let metadata = json!({ "name": name, "annotations": annotations });
    let selector = json!({ "matchLabels": labels });
    let mut of_job = template.clone();
    of_job["spec"]["restartPolicy"] = json!("Never");
    let of_job = json!({ "template": of_job });
    match kind {
        "Job" => json!({ "apiVersion": "batch/v1", "kind": kind, "metadata": metadata,
                         "spec": of_job }),
        "CronJob" => json!({ "apiVersion": "batch/v1", "kind": kind, "metadata": metadata,
                             "spec": { "schedule": "0 0 1 1 *", "jobTemplate": { "spec": of_job } } }),
        "StatefulSet" => json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata,
                                 "spec": { "serviceName": name, "selector": selector, "template": template } }),
        _ => json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata,
                     "spec": { "selector": selector, "template": template } }),
    }
}

/// The sidecar of a pod, which has to be the last init container.
pub fn sidecar(pod: &Value) -> &Value {
    let last = pod["spec"]["initContainers"]
        .as_array()
        .and_then(|inits| inits.last());
    let last = last.unwrap_or(&Value::Null);
    assert_eq!(last["name"], "lockkeeper", "{pod:#}");
    last
}

/// The first container's command and arguments.
pub fn words(pod: &Value) -> (Value, Value) {
    let app = &pod["spec"]["containers"][0];
    (app["command"].clone(), app["args"].clone())
}

pub fn wrapped(rest: &[&str]) -> Value {
    json!([&["/lockkeeper/lockkeeper", "guard", "--"], rest].concat())
}
