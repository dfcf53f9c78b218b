//! Changes in a pod as JSON, with the fields that the operator does not know kept.

use lockkeeper_crds::keys;
use serde_json::{Map, Value, json};

pub(super) fn guarded(pod: &mut Value, position: usize) -> &mut Map<String, Value> {
    pod["spec"]["containers"][position]
        .as_object_mut()
        .expect("the pod was read as one before")
}

pub(super) fn object<'a>(pod: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    object_in(
        pod.as_object_mut().expect("the pod was read as one before"),
        field,
    )
}

pub(super) fn object_in<'a>(parent: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let object = parent.entry(field).or_insert_with(|| json!({}));
    if !object.is_object() {
        *object = json!({});
    }
    object.as_object_mut().expect("it was just made one")
}

pub(super) fn object_of(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Adds to a list, unless an entry of the same name and place is there.
pub(super) fn push(parent: &mut Map<String, Value>, field: &str, entry: &impl serde::Serialize) {
    let entry = serde_json::to_value(entry).expect("types of Kubernetes are JSON");
    let list = parent.entry(field).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let same = |other: &Value| {
        ["name", "mountPath"]
            .iter()
            .all(|key| other.get(*key) == entry.get(*key))
    };
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(same)
    {
        list.push(entry);
    }
}

pub(super) fn move_last(spec: &mut Map<String, Value>) {
    if let Some(inits) = spec.get_mut("initContainers").and_then(Value::as_array_mut)
        && let Some(position) = inits
            .iter()
            .position(|container| container["name"] == keys::SIDECAR)
    {
        let sidecar = inits.remove(position);
        inits.push(sidecar);
    }
}
