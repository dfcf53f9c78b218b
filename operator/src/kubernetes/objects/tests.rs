use super::metadata::ANNOTATIONS;
use super::words::LONGEST_WORD;
use super::*;
use k8s_openapi::api::core::v1::Secret;

use kube::ResourceExt;
use lockkeeper_crds::keys::{self, FINALIZER, ROTATE};
use serde_json::{Value, json};

fn read<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_str(&object.to_string()).unwrap()
}

/// As much of everything as a tenant can write into metadata.
fn crowded() -> Value {
    let many = |value: Value| (0..1000).map(move |at| (format!("a{at}.example/b"), value.clone()));
    let long = "é".repeat(120 << 10);
    let mut annotations: serde_json::Map<_, _> = many(json!("x".repeat(100))).collect();
    for key in ANNOTATIONS {
        annotations.insert(key.to_owned(), long.clone().into());
    }
    let mut labels: serde_json::Map<_, _> = many(json!("y")).collect();
    labels.insert(keys::LOCK.into(), "report".into());
    let mut finalizers: Vec<_> = (0..1000).map(|at| format!("a{at}.example/b")).collect();
    finalizers.push(FINALIZER.into());
    let owner = |name: &str, controller: Value| json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "u", "controller": controller });
    let mut owners = vec![owner("other", json!(null)); 1000];
    owners.push(owner(&long, json!(true)));
    json!({
        "name": "report", "namespace": "shop", "uid": "u-1", "resourceVersion": "5", "generation": 3,
        "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": labels, "annotations": annotations,
        "finalizers": finalizers, "ownerReferences": owners, "managedFields": vec![json!({ "manager": "x" }); 1000],
    })
}

#[test]
fn of_metadata_no_more_is_kept_than_is_used_however_much_is_written_there() {
    let lock: LockPart = read(&json!({ "metadata": crowded(), "spec": {} }));
    assert_eq!(
        (lock.name_any().as_str(), lock.uid().as_deref()),
        ("report", Some("u-1"))
    );
    assert!(lock.metadata.deletion_timestamp.is_some() && lock.metadata.generation == Some(3));
    assert_eq!(lock.finalizers(), [FINALIZER]);
    assert_eq!(lock.labels().keys().collect::<Vec<_>>(), [keys::LOCK]);
    assert_eq!(lock.annotations().len(), ANNOTATIONS.len());
    assert_eq!(lock.annotations()[HANDOFF].len(), LONGEST_WORD);
    let [owner] = lock.owner_references() else {
        panic!("{:?}", lock.owner_references());
    };
    assert_eq!((owner.controller, owner.name.len()), (Some(true), LONGEST_WORD));
    let kept = serde_json::to_string(&lock.metadata).unwrap().len();
    assert!(kept < 8 << 10, "{kept} bytes");
    // All locks are in memory.
    let lock = DistributedLock::from(lock);
    assert_eq!(lock.annotations().keys().collect::<Vec<_>>(), [HANDOFF]);
    let kept = serde_json::to_string(&lock).unwrap().len();
    assert!(kept < 1 << 10, "{kept} bytes");
    // Nothing at all is as good as nothing in it.
    let metadata = json!({ "name": "a", "labels": null, "annotations": null, "finalizers": null, "ownerReferences": null });
    let bare: LockPart = read(&json!({ "metadata": metadata, "spec": {} }));
    assert!(bare.metadata.finalizers.is_none() && bare.metadata.owner_references.is_none());
    let others: LockPart = read(&json!({ "metadata": { "finalizers": ["a/b"] }, "spec": {} }));
    assert_eq!(others.finalizers(), [""; 0]);
}

#[test]
fn of_a_secret_the_keys_are_kept_that_are_used() {
    let secret: SecretPart = read(&json!({
        "metadata": { "namespace": "shop", "annotations": { ROTATE: "" } },
        "data": { "auth": "YQ==", "ca.crt": "Yg==", "large": "A".repeat(1 << 20), ".dockercfg": "Yw==" },
    }));
    assert!(secret.data.has(AUTH) && !secret.data.has("large"));
    let secret = Secret::from(secret);
    let data = secret.data.as_ref().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), [".dockercfg", "auth", "ca.crt"]);
    assert!(secret.annotations().contains_key(ROTATE));
    let empty: SecretPart = read(&json!({ "metadata": {}, "data": null }));
    assert!(!empty.data.has(AUTH));
}

#[test]
fn of_a_pod_the_first_word_of_each_command_is_kept_and_no_variable() {
    let pod: PodPart = read(&json!({
        "metadata": { "name": "a" },
        "spec": {
            "volumes": vec![json!({}); 1000],
            "containers": [
                { "name": "app", "image": "x", "command": vec!["/app"; 1000], "env": vec![json!({ "name": "A" }); 1000] },
                { "name": "bare" },
            ],
        },
        "status": { "phase": "Running", "initContainerStatuses": null, "containerStatuses": [
            { "name": "app", "state": { "running": { "startedAt": null } } },
            { "name": "bare", "state": { "waiting": { "reason": "ErrImagePull" } } },
            { "name": "new" },
        ] },
    }));
    let spec = pod.spec.unwrap();
    let programs: Vec<_> = spec.containers.iter().map(|one| one.program.clone()).collect();
    assert_eq!(programs, [Some(Word("/app".into())), None]);
    let statuses = pod.status.unwrap().container_statuses;
    let runs: Vec<_> = statuses.iter().map(|one| (one.runs(), one.waits_for())).collect();
    assert_eq!(runs, [(true, None), (false, Some("ErrImagePull")), (false, None)]);
}
