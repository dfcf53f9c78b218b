//! Puts a pod behind its lock: adds the sidecar and the guard.
//!
//! [`inject`] is pure: the pod and what is known about the cluster go in, the whole pod comes out, or one
//! sentence why not. It may be applied to its own result, also after other injectors have changed that:
//! then it only brings the guard back to the first place and the sidecar to the last one.
//!
//! The sidecar is the *last* of `initContainers`: so it is the first to end after the application, and a
//! kubelet waits for it before it starts the application again (`computeInitContainerActions`).

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_crds::keys::{self, Guard, LockRequest, Readiness};
use lockkeeper_crds::settings::word_of;
use serde::Deserialize;
use serde_json::{Value, json};

mod check;
mod chosen;
mod command;
mod context;
mod environment;
mod json;
mod mode;
pub(crate) mod names;
mod parts;
mod probes;
mod refusal;
mod resources;
mod sidecar;
mod signal;
mod target;

pub(crate) use check::is_windows;
use chosen::proxy_in_the_way;
pub(crate) use chosen::{DEFAULT_CONTAINER, Said, by_place, chosen};
pub use context::{ClusterFacts, Context, ImageConfig, ImageUnknown, Replicas, SidecarConfig};
use json::object;
pub use mode::Mode;
pub use refusal::Refusal;
pub(crate) use resources::of_little_cpu;
use target::Target;

/// A pod behind its lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// The whole pod, with fields that we do not know kept.
    pub pod: Value,
    pub warnings: Vec<String>,
    pub mode: Mode,
}

/// An image whose configuration the injection of a pod depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageQuestion {
    /// The reference, as in the pod.
    pub image: String,
    /// `kubernetes.io/arch` of the pod's node selector.
    pub architecture: Option<String>,
}

/// A pod as it came, and with the types of its fields. Reading takes most of the time of an injection, so it is done
/// once.
#[derive(Debug)]
pub struct Subject<'a> {
    pod: &'a Value,
    typed: Pod,
    request: Option<LockRequest>,
}

impl<'a> Subject<'a> {
    /// Reads a pod.
    ///
    /// # Errors
    /// When it is not a pod, or when its keys make no sense.
    pub fn read(pod: &'a Value) -> Result<Self, Refusal> {
        let typed = Pod::deserialize(pod).map_err(|error| Refusal::Unreadable(error.to_string()))?;
        let request = request_of(&typed)?;
        Ok(Self { pod, typed, request })
    }

    /// The lock that it names, if it names one.
    pub fn lock(&self) -> Option<&str> {
        self.request.as_ref().map(|request| request.lock.as_str())
    }

    pub(crate) fn spec(&self) -> Option<&PodSpec> {
        self.typed.spec.as_ref()
    }

    /// The request and the spec; `None` if it names no lock.
    fn asks(&self) -> Option<(&LockRequest, &PodSpec)> {
        self.request.as_ref().zip(self.typed.spec.as_ref())
    }
}

/// Which image has to be looked up before [`inject`], if any.
///
/// # Errors
/// As [`inject`].
pub fn image_question(subject: &Subject<'_>) -> Result<Option<ImageQuestion>, Refusal> {
    let Some((request, spec)) = subject.asks() else {
        return Ok(None);
    };
    let typed = &subject.typed;
    let (position, _) = check::guarded(typed, request)?;
    let container = &spec.containers[position];
    let has_command = container
        .command
        .as_ref()
        .is_some_and(|command| !command.is_empty());
    let shares = spec.share_process_namespace == Some(true);
    let has_user = signal::stated_user(container, typed).is_some();
    let is_known = match request.guard {
        Guard::Wrap => has_command,
        Guard::Signal => has_user,
        Guard::Auto => has_command && (!shares || has_user),
    };
    if is_known || injected(typed).is_some() {
        return Ok(None);
    }
    let selector = spec.node_selector.as_ref();
    Ok(container.image.clone().map(|image| ImageQuestion {
        image,
        architecture: selector
            .and_then(|labels| labels.get("kubernetes.io/arch"))
            .cloned(),
    }))
}

/// Puts a pod behind its lock; `None` if it names no lock.
///
/// # Errors
/// The first reason why the pod cannot be guarded.
pub fn inject(subject: &Subject<'_>, context: &Context<'_>) -> Result<Option<Injection>, Refusal> {
    let Some((request, spec)) = subject.asks() else {
        return Ok(None);
    };
    let Subject { pod, typed, .. } = subject;
    check::pod(pod, spec)?;
    let (position, said) = check::guarded(typed, request)?;
    let container = &spec.containers[position];
    // With these settings the operator makes a lock that is missing.
    let defaults = DistributedLockSpec::for_tick(context.sidecar.tick_time);
    let lock = context.lock.unwrap_or(&defaults);
    check::lock(request, lock, context)?;

    let mut patched = (*pod).clone();
    let target = Target {
        typed,
        spec,
        container,
        request,
        lock,
        context,
    };
    let (mode, mut warnings) = if let Some(sidecar) = injected(typed) {
        check::is_for(sidecar, container, &request.lock, context)?;
        let mode = if signal::is_chosen(sidecar) {
            Mode::Signal
        } else {
            Mode::Wrap
        };
        target.repair(&mut patched, position, mode)?;
        (mode, Vec::new())
    } else {
        check::names_are_free(spec)?;
        if let Err(ImageUnknown::Passing(problem)) = context.image {
            return Err(Refusal::ImageUnknown {
                container: container.name.clone(),
                problem: problem.clone(),
            });
        }
        let (mode, mut warnings) = target.mode()?;
        target.add(&mut patched, position, mode)?;
        if mode == Mode::Signal
            && let Some(proxy) = proxy_in_the_way(typed, &spec.containers)
        {
            warnings.push(format!(
                "container `{proxy}` starts only after the sidecar has the lock, and a sidecar that reaches the \
                 ensemble only through this proxy never gets it: exclude the ensemble's port from the proxy \
                 (traffic.sidecar.istio.io/excludeOutboundPorts, config.linkerd.io/skip-outbound-ports)"
            ));
        }
        if said == Said::ByPlace {
            warnings.push(by_place("pod", &container.name));
        }
        if mode == Mode::Wrap {
            let spec = &pod["spec"];
            warnings.extend(of_little_cpu(&spec["containers"][position], spec));
        }
        (mode, warnings)
    };
    if request.readiness == Readiness::Holder && context.replicas == Replicas::Many {
        warnings.push(HOLDER_OF_MANY.to_owned());
    }
    mark(&mut patched, &target, mode);
    Ok(Some(Injection {
        pod: patched,
        warnings,
        mode,
    }))
}

/// Warning about a combination that stops rollouts.
pub(crate) const HOLDER_OF_MANY: &str = "lockkeeper.io/readiness is `holder` and there is more than one replica: standbys \
                                  are never ready, so rollouts stop and PodDisruptionBudgets block; use `queued` and \
                                  let Services select lockkeeper.io/role: active";

/// What a pod asks for; `None` for the mirror pod of a static pod, which runs already and cannot be changed.
fn request_of(pod: &Pod) -> Result<Option<LockRequest>, Refusal> {
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key("kubernetes.io/config.mirror")) {
        return Ok(None);
    }
    let metadata = &pod.metadata;
    Ok(LockRequest::parse(
        metadata.labels.as_ref(),
        metadata.annotations.as_ref(),
    )?)
}

/// The sidecar that we gave the pod before.
fn injected(pod: &Pod) -> Option<&Container> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(keys::INJECTED)?;
    let mut inits = pod.spec.as_ref()?.init_containers.iter().flatten();
    inits.find(|container| container.name == keys::SIDECAR)
}

/// Records in labels and annotations of the pod what it got.
fn mark(pod: &mut Value, target: &Target<'_>, mode: Mode) {
    let metadata = object(pod, "metadata");
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    labels[keys::LOCK] = json!(target.request.lock);
    // Replaces `auto`, for example. It is also a label, so that users can select by it.
    labels[keys::GUARD] = json!(mode.as_str());
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    annotations[keys::LOCK] = json!(target.request.lock);
    annotations[keys::GUARD] = json!(mode.as_str());
    // Another injector may put a container of its own before it.
    annotations[keys::CONTAINER] = json!(target.container.name);
    annotations[keys::ENSEMBLE] = json!(target.context.ensemble);
    if annotations.get(keys::INJECTED).is_none() {
        // Only at the first injection: the sidecar keeps its settings.
        annotations[keys::SETTINGS] = json!(word_of(target.lock));
        annotations[keys::INJECTED] = json!(env!("CARGO_PKG_VERSION"));
    }
}
