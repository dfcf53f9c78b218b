//! Of each pod, the little that the operator needs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lockkeeper_crds::keys::{self, Guard};

use crate::kubernetes::objects::{ContainerPart, ContainerStatusPart, PodPart};

/// The binary that wraps a guarded container's command.
const WRAPPER: &str = "/lockkeeper/lockkeeper";

/// What is kept of the ID of an ensemble, in bytes: one more than a UUID has, so that a longer word is none. Only
/// the API server checks what is written on a pod later, and it takes 256 KiB.
const LONGEST_ID: usize = 37;

/// Longest name of a workload (DNS subdomain, RFC 1123), in bytes.
const LONGEST_NAME: usize = 253;

/// Reasons for which a container waits and will not run the application, however long the pod waits.
const HOPELESS: [&str; 7] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CrashLoopBackOff",
    "CreateContainerError",
    "RunContainerError",
];

/// Reason for which an ordinary container waits until all init containers have started (`PodInitializing` in
/// `pkg/kubelet/kubelet_pods.go`).
const NOT_BEGUN: &str = "PodInitializing";

/// What a Service may select by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The pod holds the lock.
    Active,
    /// It does not.
    Standby,
}

/// What a pod is controlled by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A Deployment, by name.
    Deployment(String),
    /// A StatefulSet, by name.
    StatefulSet(String),
    /// A DaemonSet, by name.
    DaemonSet(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// UID: a pod of the same name may be another one.
    pub(crate) uid: String,
    /// When it was created, by the clock of the API server.
    pub(crate) created: Option<Timestamp>,
    /// Name of its node, once it has one.
    pub(crate) node: Option<String>,
    /// Its role label as it is.
    pub(crate) role: Option<Role>,
    /// What controls it, if it is something that has rollouts.
    pub(crate) owner: Option<Owner>,
    /// `pod-template-hash` or `controller-revision-hash`.
    pub(crate) revision: Option<String>,
    /// Whether it could run the application at once.
    pub(crate) is_healthy: bool,
    /// How often its application's container has ended.
    pub(crate) ends: i32,
    /// How it is guarded, as the webhook has written down.
    pub(crate) guard: Option<Guard>,
    /// ID of the ensemble that it was made for; `None` for one that an older webhook injected. What is no ID stays as it
    /// is, up to a bound: it is that of no ensemble.
    pub(crate) ensemble: Option<String>,
    /// Which settings of the lock it was made with; `None` for one that an older webhook injected.
    pub(crate) settings: Option<String>,
    /// Whether its containers have ended for good.
    pub(crate) is_over: bool,
}

// === impl Role ===

impl Role {
    /// Value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby => "standby",
        }
    }

    fn parse(label: &str) -> Option<Self> {
        [Self::Active, Self::Standby]
            .into_iter()
            .find(|role| role.as_str() == label)
    }
}

// === impl PodFacts ===

impl PodFacts {
    pub(crate) fn of(pod: &PodPart) -> Self {
        let labels = pod.labels();
        let controller = pod
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true));
        let owner = controller.and_then(|owner| {
            // The creator of the pod can write any name into a reference.
            let name = Some(owner.name.clone()).filter(|name| name.len() <= LONGEST_NAME)?;
            match owner.kind.as_str() {
                // A Deployment names its ReplicaSets NAME-HASH (`getNewReplicaSet`).
                "ReplicaSet" => name
                    .strip_suffix(labels.get("pod-template-hash")?)
                    .and_then(|name| name.strip_suffix('-'))
                    .map(|name| Owner::Deployment(name.to_owned())),
                "StatefulSet" => Some(Owner::StatefulSet(name)),
                "DaemonSet" => Some(Owner::DaemonSet(name)),
                _ => None,
            }
        });
        let revision = labels
            .get("pod-template-hash")
            .or_else(|| labels.get("controller-revision-hash"));
        Self {
            uid: pod.uid().unwrap_or_default(),
            created: pod.creation_timestamp().map(|Time(created)| created),
            node: pod
                .spec
                .as_ref()
                .and_then(|spec| Some(spec.node_name.clone()?.into())),
            role: labels.get(keys::ROLE).and_then(|label| Role::parse(label)),
            owner,
            // A value of a label has 63 bytes at most.
            revision: revision.cloned(),
            is_healthy: is_healthy(pod),
            ends: ends(pod),
            guard: guard(pod),
            ensemble: pod
                .annotations()
                .get(keys::ENSEMBLE)
                .map(|id| cut(id, LONGEST_ID)),
            settings: pod
                .annotations()
                .get(keys::SETTINGS)
                .map(|hash| cut(hash, LONGEST_ID)),
            is_over: matches!(phase(pod), Some("Succeeded" | "Failed")),
        }
    }
}

/// The beginning of a word.
fn cut(word: &str, length: usize) -> String {
    word[..word.floor_char_boundary(length)].to_owned()
}

/// The mode of an injected pod. Before the injection, the key is a request.
fn guard(pod: &PodPart) -> Option<Guard> {
    let annotations = pod.annotations();
    annotations.get(keys::INJECTED)?;
    let guard = annotations.get(keys::GUARD)?.parse().ok()?;
    (guard != Guard::Auto).then_some(guard)
}

fn phase(pod: &PodPart) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// The name of the container that is guarded: the first one where nothing else is written down.
fn guarded(pod: &PodPart) -> Option<&str> {
    let named = pod.annotations().get(keys::CONTAINER).map(String::as_str);
    named.or_else(|| Some(pod.spec.as_ref()?.containers.first()?.name.as_str()))
}

/// How often the guarded container has ended.
fn ends(pod: &PodPart) -> i32 {
    let name = guarded(pod);
    let mut statuses = pod.status.iter().flat_map(|status| &status.container_statuses);
    statuses
        .find(|found| Some(found.name.as_str()) == name)
        .map_or(0, ContainerStatusPart::ends)
}

/// Whether the sidecar runs and nothing but the lock keeps the pod from running the application. A wrapped container
/// runs while it waits. In signal mode the kubelet starts no ordinary container before the sidecar's startup probe
/// succeeds, that is before the lock is held: then the others wait as well as the guarded one.
fn is_healthy(pod: &PodPart) -> bool {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else {
        return false;
    };
    let is_sidecar = |container: &ContainerStatusPart| container.name == keys::SIDECAR && container.runs();
    if pod.metadata.deletion_timestamp.is_some() || !status.init_container_statuses.iter().any(is_sidecar) {
        return false;
    }
    let name = guarded(pod);
    let guarded = spec.containers.iter().find(|one| Some(one.name.as_str()) == name);
    let is_wrapped = |container: &ContainerPart| {
        let program = container.program.as_ref();
        program.is_some_and(|program| program.0 == WRAPPER)
    };
    let is_gated = guarded.is_some_and(|guarded| !is_wrapped(guarded));
    spec.containers.iter().all(|container| {
        let mut statuses = status.container_statuses.iter();
        let Some(found) = statuses.find(|found| found.name == container.name) else {
            return is_gated;
        };
        let waits = |reason: &str| match name == Some(container.name.as_str()) {
            // Where its start was tried once, the lease file was missing.
            true => !HOPELESS.contains(&reason),
            false => reason == NOT_BEGUN,
        };
        found.runs() || (is_gated && found.waits_for().is_some_and(waits))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// A pod of a Deployment, whose first container is wrapped and in the state `app`.
    pub(crate) fn pod(wrapped: bool, app: serde_json::Value) -> PodPart {
        let command = if wrapped { WRAPPER } else { "/app" };
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "shop", "name": "report-1", "uid": "u1",
                "labels": {"lockkeeper.io/lock": "report", "pod-template-hash": "6c9d", "lockkeeper.io/role": "active"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "report-6c9d", "uid": "u2",
                    "controller": true}],
            },
            "spec": {"containers": [{"name": "app", "command": [command]}]},
            "status": {
                "initContainerStatuses": [{"name": "lockkeeper", "ready": true, "image": "", "imageID": "",
                    "restartCount": 0, "state": {"running": {}}}],
                "containerStatuses": [{"name": "app", "ready": false, "image": "", "imageID": "", "restartCount": 0,
                    "state": app}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn of_a_pod_little_is_kept_however_much_is_written_on_it() {
        let mut pod = pod(true, json!({"running": {}}));
        let long = "é".repeat(120 << 10);
        pod.annotations_mut()
            .insert("lockkeeper.io/ensemble".into(), long.clone());
        let owner = &mut pod.metadata.owner_references.as_mut().unwrap()[0];
        (owner.kind, owner.name) = ("StatefulSet".into(), long);
        let facts = PodFacts::of(&pod);
        let kept = facts.ensemble.expect("it is still that of no ensemble");
        assert!(
            kept.len() <= LONGEST_ID && uuid::Uuid::parse_str(&kept).is_err(),
            "{kept}"
        );
        assert_eq!(facts.owner, None);
    }

    #[test]
    fn a_pod_is_healthy_when_nothing_but_the_lock_keeps_its_application_from_running() {
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        for (wrapped, app, healthy) in [
            (true, json!({"running": {}}), true),
            (true, waiting("ContainerCreating"), false),
            (false, waiting("PodInitializing"), true),
            (false, waiting("CreateContainerConfigError"), true),
            (false, waiting("ImagePullBackOff"), false),
            (false, waiting("CrashLoopBackOff"), false),
            (false, json!({"terminated": {"exitCode": 1}}), false),
        ] {
            assert_eq!(
                PodFacts::of(&pod(wrapped, app.clone())).is_healthy,
                healthy,
                "{app}"
            );
        }
        let mut leaving = pod(true, json!({"running": {}}));
        leaving.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ));
        assert!(!PodFacts::of(&leaving).is_healthy);
    }

    #[test]
    fn a_pod_of_two_containers_is_healthy_in_signal_mode_while_both_wait_for_the_lock_and_wrapped_if_both_run()
     {
        let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
        let (runs, unseen) = (json!({"state": {"running": {}}}), json!(null));
        let ended = json!({"state": {"terminated": {"exitCode": 0}}});
        let (gated, created) = (waiting("PodInitializing"), waiting("ContainerCreating"));
        let unpulled = waiting("ImagePullBackOff");
        for (wrapped, app, other, healthy) in [
            (false, &gated, &gated, true),
            // The kubelet has said nothing of it yet.
            (false, &gated, &unseen, true),
            (false, &unseen, &unseen, true),
            // The pod held the lock before, and the other one has stayed.
            (false, &gated, &runs, true),
            (false, &waiting("CreateContainerConfigError"), &runs, true),
            (false, &gated, &unpulled, false),
            (false, &gated, &waiting("CrashLoopBackOff"), false),
            (false, &gated, &waiting("CreateContainerConfigError"), false),
            (false, &gated, &ended, false),
            (false, &unpulled, &gated, false),
            (true, &runs, &runs, true),
            (true, &runs, &gated, false),
            (true, &runs, &created, false),
            (true, &runs, &unseen, false),
            (true, &unseen, &runs, false),
            (true, &gated, &gated, false),
        ] {
            let mut pod = pod(wrapped, json!({}));
            let other_part = serde_json::from_value(json!({"name": "other", "command": ["/other"]})).unwrap();
            pod.spec.as_mut().unwrap().containers.push(other_part);
            let status = |name: &str, found: &serde_json::Value| {
                let mut found = found.as_object()?.clone();
                found.insert("name".to_owned(), json!(name));
                Some(serde_json::from_value(found.into()).unwrap())
            };
            let statuses = [status("app", app), status("other", other)];
            pod.status.as_mut().unwrap().container_statuses = statuses.into_iter().flatten().collect();
            let facts = PodFacts::of(&pod);
            assert_eq!(facts.is_healthy, healthy, "wrapped: {wrapped}, {app}, {other}");
        }
    }

    #[test]
    fn an_end_of_the_application_is_counted_before_and_after_the_kubelet_starts_it_again_and_once() {
        let ends = |state: serde_json::Value, last: serde_json::Value, restarts: i32| {
            let mut pod = pod(true, json!({}));
            let status = &mut pod.status.as_mut().unwrap().container_statuses[0];
            let found =
                json!({"name": status.name, "state": state, "lastState": last, "restartCount": restarts});
            *status = serde_json::from_value(found).unwrap();
            PodFacts::of(&pod).ends
        };
        let (running, ended) = (json!({"running": {}}), json!({"terminated": {"exitCode": 0}}));
        let backs_off = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let gated = json!({"waiting": {"reason": "CreateContainerConfigError"}});
        assert_eq!(
            ends(json!({"waiting": {"reason": "PodInitializing"}}), json!(null), 0),
            0
        );
        assert_eq!(ends(running.clone(), json!(null), 0), 0);
        assert_eq!(ends(ended.clone(), json!(null), 0), 1);
        assert_eq!(ends(backs_off, ended.clone(), 0), 1);
        assert_eq!(ends(gated, ended.clone(), 0), 1);
        assert_eq!(ends(running, ended.clone(), 1), 1);
        assert_eq!(ends(ended.clone(), ended, 1), 2);
    }
}
