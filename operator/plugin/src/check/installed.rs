//! What is looked at of an installation. Pure. Of what there may be many, only numbers and some examples are kept.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lockkeeper_crds::lock::{ConditionType, Reason};
use lockkeeper_crds::{DistributedLock, keys};

use super::counted::Counted;

/// What the API server has told, or why it has not.
pub(super) type Read<T> = Result<T, String>;

/// All that is looked at.
pub(super) struct Installation {
    pub(super) resource: Read<Option<CustomResourceDefinition>>,
    pub(super) operators: Read<Vec<Deployment>>,
    /// The rights that the operator lacks.
    pub(super) lacking: Read<Vec<String>>,
    pub(super) webhooks: Read<Vec<MutatingWebhookConfiguration>>,
    /// A marked pod as it would be created, or why it would not.
    pub(super) tried: Read<Pod>,
    pub(super) policies: Read<(
        Vec<ValidatingAdmissionPolicy>,
        Vec<ValidatingAdmissionPolicyBinding>,
    )>,
    pub(super) locks: Read<Locks>,
    pub(super) sidecars: Read<Sidecars>,
}

/// Whether a Deployment of the chart is the operator: its pods say so.
pub(super) fn is_operator(one: &Deployment) -> bool {
    let template = one.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let labels = template.and_then(|metadata| metadata.labels.as_ref());
    labels
        .and_then(|labels| labels.get("app.kubernetes.io/component"))
        .is_some_and(|component| component == "operator")
}

/// The image of the sidecar that an operator injects.
pub(super) fn sidecar_image(operator: &Deployment) -> Option<String> {
    let pod = operator.spec.as_ref()?.template.spec.as_ref()?;
    let mut variables = pod.containers.iter().flat_map(|one| one.env.iter().flatten());
    variables
        .find(|one| one.name == "LOCKKEEPER_SIDECAR_IMAGE")?
        .value
        .clone()
}

/// How long a new lock may be without a status, in seconds.
const NEW: i64 = 60;

/// The locks of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) all: usize,
    /// What the installation is to blame for.
    pub(super) broken: Counted,
    /// What their users are to look at.
    pub(super) unready: Counted,
}

impl Locks {
    pub(super) fn add(&mut self, lock: &DistributedLock, now: Timestamp) {
        self.all += 1;
        // It waits for its queue to be empty.
        if lock.metadata.deletion_timestamp.is_some() {
            return;
        }
        let name = format!("{}/{}", lock.namespace().unwrap_or_default(), lock.name_any());
        let status = lock.status.as_ref();
        let Some(ready) = status.and_then(|status| status.condition(ConditionType::Ready)) else {
            let since = lock.metadata.creation_timestamp.as_ref();
            if since.is_some_and(|since| now.as_second() - since.0.as_second() > NEW) {
                self.broken.add(&format!("{name}: no operator has described it"));
            }
            return;
        };
        if ready.status == "True" {
            return;
        }
        let reason = |one: Reason| ready.reason == one.as_str();
        let reachable = status.and_then(|status| status.condition(ConditionType::EnsembleReachable));
        // Another ensemble than the lock was in is what a move leads to.
        let is_cut_off = lock.spec.zookeeper.is_none()
            && reachable
                .is_some_and(|one| one.status != "True" && one.reason != Reason::EnsembleChanged.as_str());
        let says = format!("{name}: {}", ready.message);
        if is_cut_off || reason(Reason::ResourceOutdated) || reason(Reason::ProvisioningFailed) {
            self.broken.add(&says);
        } else {
            self.unready.add(&says);
        }
    }
}

/// The pods behind locks, by their sidecars.
#[derive(Debug)]
pub(super) struct Sidecars {
    pub(super) injected: String,
    pub(super) all: usize,
    /// Those whose sidecar has another image.
    pub(super) other: Counted,
    /// Those without a sidecar.
    pub(super) unguarded: Counted,
}

impl Sidecars {
    /// None yet, beside an operator that injects this image.
    pub(super) fn of(injected: String) -> Self {
        Self {
            injected,
            all: 0,
            other: Counted::default(),
            unguarded: Counted::default(),
        }
    }

    pub(super) fn add(&mut self, pod: &Pod) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return;
        }
        self.all += 1;
        match sidecar(pod) {
            None => {
                let namespace = pod.namespace().unwrap_or_default();
                self.unguarded.add(&format!("{namespace}/{}", pod.name_any()));
            }
            Some(image) if image != self.injected => self.other.add(image),
            Some(_) => {}
        }
    }
}

/// Whether a pod has our sidecar.
pub(super) fn is_guarded(pod: &Pod) -> bool {
    sidecar(pod).is_some()
}

/// The image of a pod's sidecar, which is one of its init containers.
fn sidecar(pod: &Pod) -> Option<&str> {
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let mut ours = containers.filter(|one| one.name == keys::SIDECAR);
    ours.next().map(|one| one.image.as_deref().unwrap_or_default())
}
