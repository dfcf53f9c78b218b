//! Workloads: our keys are copied from the object to its pod template, and taken back with it.
//!
//! So `kubectl annotate deployment NAME lockkeeper.io/lock=LOCK` is enough. What was copied is written
//! down on the template ([`keys::PROPAGATED`]): only that is ever taken back, and what a user wrote into the
//! template stays.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lockkeeper_crds::keys::{Guard, KeyError, LockRequest, Readiness};
use lockkeeper_crds::{DistributedLockSpec, keys};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::admission::inject::{
    DEFAULT_CONTAINER, HOLDER_OF_MANY, Refusal, Said, by_place, chosen, is_windows, of_little_cpu,
};

/// In the list of what was copied: the container that we have named ourselves, with its name.
const DERIVED: &str = "lockkeeper.io/container=";

/// The workload as it should be, and what its template asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Copied {
    /// The whole object; `None` if nothing changes.
    pub object: Option<Value>,
    /// What the pods will ask for; `None` for no lock.
    pub request: Option<LockRequest>,
    /// For the user.
    pub warnings: Vec<String>,
}

/// Copies the keys of a workload of `kind` to its template and takes back those that are gone.
/// `is_new` is false for an update.
///
/// # Errors
/// When a key is wrong: pods of this template would be refused one by one later.
pub fn copy(kind: &str, object: &Value, is_new: bool) -> Result<Copied, Refusal> {
    // An object that is being deleted creates no pods, and clients have to be able to remove its finalizers.
    let is_going = object["metadata"]["deletionTimestamp"].is_string();
    let pointer = template_of(kind).filter(|pointer| object.pointer(pointer).is_some_and(Value::is_object));
    let Some(pointer) = pointer.filter(|_| !is_going) else {
        return Ok(Copied {
            object: None,
            request: None,
            warnings: Vec::new(),
        });
    };
    let own = metadata(object)?;
    let mut patched = object.clone();
    let template = patched
        .pointer_mut(pointer)
        .expect("it was there in the original");
    let before = metadata(template)?;
    let mut warnings = Vec::new();
    let copied: Vec<&str> = annotation(&before, keys::PROPAGATED)
        .map(|list| list.split(',').collect())
        .unwrap_or_default();
    // With its name: one that differs is a user's.
    let derived = copied.iter().find_map(|key| key.strip_prefix(DERIVED));
    let derived = derived.filter(|name| annotation(&before, keys::CONTAINER) == Some(name));
    let mut now_copied = Vec::new();
    for key in keys::OF_USERS {
        let was_copied = copied.contains(&key) || key == keys::CONTAINER && derived.is_some();
        let wanted = agreed(key, &own)?;
        let present = if was_copied { None } else { agreed(key, &before)? };
        match (wanted, present) {
            (Some(wanted), None) => {
                set(template, "annotations", key, wanted);
                if key == keys::LOCK {
                    set(template, "labels", key, wanted);
                }
                now_copied.push(key.to_owned());
            }
            (Some(wanted), Some(present)) if wanted != present => warnings.push(format!(
                "{key} is `{wanted}` on the {kind} and `{present}` on its pod template: the template's counts"
            )),
            (None, None) if was_copied => {
                for map in ["annotations", "labels"] {
                    unset(template, map, key);
                }
            }
            _ => {}
        }
    }
    if let Some(name) = unnamed_container(kind, template, derived, is_new, &mut warnings)? {
        set(template, "annotations", keys::CONTAINER, &name);
        now_copied.push(format!("{DERIVED}{name}"));
    }
    if now_copied.is_empty() {
        unset(template, "annotations", keys::PROPAGATED);
    } else {
        set(template, "annotations", keys::PROPAGATED, &now_copied.join(","));
    }
    let after = metadata(template)?;
    let request = LockRequest::parse(after.labels.as_ref(), after.annotations.as_ref())?;
    if patched == *object {
        return Ok(Copied {
            object: None,
            request,
            warnings,
        });
    }
    if kind == "Job" && !is_new {
        warnings.push(
            "the pod template of a Job cannot change: Lockkeeper's keys take effect on a Job that is created with them"
                .to_owned(),
        );
        return Ok(Copied {
            object: None,
            request,
            warnings,
        });
    }
    Ok(Copied {
        object: Some(patched),
        request,
        warnings,
    })
}

/// The container that is guarded although no key names it. It is recorded while the template has only the user's
/// containers: the webhooks of meshes may put theirs before it, into the pods. `derived` is the record so far.
fn unnamed_container(
    kind: &str,
    template: &Value,
    derived: Option<&str>,
    is_new: bool,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, Refusal> {
    let now = metadata(template)?;
    let is_wanted = agreed(keys::LOCK, &now)?.is_some() && agreed(keys::CONTAINER, &now)?.is_none();
    let is_fixed = kind == "Job" && !is_new && derived.is_none();
    let containers = template["spec"]["containers"].as_array().into_iter().flatten();
    let names: Vec<_> = containers.filter_map(|one| one["name"].as_str()).collect();
    // The API server refuses a template without containers.
    if !is_wanted || is_fixed || names.is_empty() {
        return Ok(None);
    }
    match chosen(None, annotation(&now, DEFAULT_CONTAINER), &names) {
        Ok((position, said)) => {
            let name = names[position];
            if said == Said::ByPlace && derived != Some(name) {
                warnings.push(by_place("pod template", name));
            }
            Ok(Some(name.to_owned()))
        }
        Err(refusal) => {
            warnings.push(format!("{refusal}; its pods will be refused"));
            Ok(None)
        }
    }
}

/// What a user should know of a workload whose template asks for a lock. `lock` is its settings, if it
/// exists; `has_ensemble` says whether the operator has one for locks that name none.
pub fn advise(
    kind: &str,
    object: &Value,
    request: &LockRequest,
    lock: Option<&DistributedLockSpec>,
    has_ensemble: bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = template_of(kind)
        .and_then(|pointer| object.pointer(pointer))
        .map(|template| &template["spec"]);
    let spec = spec.unwrap_or(&Value::Null);
    if spec["hostPID"] == true {
        warnings.push(format!("{}; its pods will be refused", Refusal::HostPid));
    }
    if is_windows(spec) {
        warnings.push(format!("{}; its pods will be refused", Refusal::Windows));
    }
    let replicas = match kind {
        "DaemonSet" => 2,
        "Job" => object["spec"]["parallelism"].as_i64().unwrap_or(1),
        _ => object["spec"]["replicas"].as_i64().unwrap_or(1),
    };
    if request.readiness == Readiness::Holder && replicas > 1 {
        warnings.push(HOLDER_OF_MANY.to_owned());
    }
    // The template names it by now.
    let named = request.container.as_deref();
    let mut containers = spec["containers"].as_array().into_iter().flatten();
    if let Some(container) = containers.find(|one| named.is_some() && one["name"].as_str() == named)
        && request.guard != Guard::Signal
    {
        warnings.extend(of_little_cpu(container, spec));
    }
    if !has_ensemble && lock.is_none_or(|lock| lock.zookeeper.is_none()) {
        warnings.push(format!(
            "{}; its pods will be refused",
            Refusal::NoEnsemble(request.lock.clone())
        ));
    }
    warnings
}

/// Where the pod template of a kind is.
fn template_of(kind: &str) -> Option<&'static str> {
    match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => Some("/spec/template"),
        "CronJob" => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

fn metadata(of: &Value) -> Result<ObjectMeta, Refusal> {
    match &of["metadata"] {
        Value::Null => Ok(ObjectMeta::default()),
        metadata => ObjectMeta::deserialize(metadata).map_err(|error| Refusal::Unreadable(error.to_string())),
    }
}

fn agreed<'a>(key: &'static str, metadata: &'a ObjectMeta) -> Result<Option<&'a String>, KeyError> {
    keys::agreed(key, metadata.labels.as_ref(), metadata.annotations.as_ref())
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn set(template: &mut Value, map: &str, key: &str, value: &str) {
    member(member(template, "metadata"), map)[key] = json!(value);
}

fn unset(template: &mut Value, map: &str, key: &str) {
    let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(entries) = metadata.get_mut(map).and_then(Value::as_object_mut) else {
        return;
    };
    // A map that was made for our keys alone goes with the last of them.
    if entries.remove(key).is_some() && entries.is_empty() {
        metadata.remove(map);
    }
}

fn member<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    let member = &mut value[name];
    if member.is_null() {
        *member = Value::Object(Map::new());
    }
    member
}
