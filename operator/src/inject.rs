//! Puts a pod behind its lock: adds the sidecar and the guard.
//!
//! [`inject`] is pure: the pod and what is known about the cluster go in, the whole pod comes out, or one
//! sentence why not. It may be applied to its own result, also after other injectors have changed that:
//! then it only brings the guard back to the first place and the sidecar to the last one.
//!
//! The sidecar is the *last* of `initContainers`: so it is the first to end after the application, and a
//! kubelet waits for it before it starts the application again (`computeInitContainerActions`).

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use lockkeeper_crds::keys::{self, Guard, LockRequest, Readiness};
use lockkeeper_crds::lock::LockMode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

mod check;
mod chosen;
mod command;
mod context;
mod environment;
mod mode;
pub mod names;
mod probes;
mod refusal;
mod resources;
pub mod settings;
mod sidecar;
mod signal;

pub use check::is_windows;
use chosen::proxy_in_the_way;
pub use chosen::{DEFAULT_CONTAINER, Said, by_place, chosen};
pub use context::{ClusterFacts, Context, ImageConfig, ImageUnknown, Replicas, SidecarConfig};
pub use mode::Mode;
pub use refusal::Refusal;
use sidecar::{Sidecar, User};

/// A pod behind its lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// The whole pod, with fields that we do not know kept.
    pub pod: Value,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// How it is guarded.
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

/// A pod that was read, as it came and with the types of its fields: that takes most of the time of an
/// injection, so it is done once.
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
    /// When it is none, or when its keys say nothing that makes sense.
    pub fn read(pod: &'a Value) -> Result<Self, Refusal> {
        let typed = Pod::deserialize(pod).map_err(|error| Refusal::Unreadable(error.to_string()))?;
        let request = request_of(&typed)?;
        Ok(Self { pod, typed, request })
    }

    /// The lock that it names, if it names one.
    pub fn lock(&self) -> Option<&str> {
        self.request.as_ref().map(|request| request.lock.as_str())
    }

    /// What is in it.
    pub fn spec(&self) -> Option<&PodSpec> {
        self.typed.spec.as_ref()
    }

    /// What it asks for, and with what; `None` if it names no lock.
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
    let defaults = Default::default();
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
                "container `{proxy}` is started when the sidecar has the lock, and if the sidecar reaches the ensemble by \
                 this proxy alone it never has: leave the ensemble's port to the proxy's exceptions \
                 (traffic.sidecar.istio.io/excludeOutboundPorts, config.linkerd.io/skip-outbound-ports)"
            ));
        }
        if said == Said::ByPlace {
            warnings.push(by_place("pod", &container.name));
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
pub const HOLDER_OF_MANY: &str = "lockkeeper.io/readiness is `holder` and there is more than one replica: standbys \
                                  are never ready, so rollouts stop and PodDisruptionBudgets block; use `queued` and \
                                  let Services select lockkeeper.io/role: active";

/// A pod, what it asks for and what it gets.
struct Target<'a> {
    typed: &'a Pod,
    spec: &'a PodSpec,
    container: &'a Container,
    request: &'a LockRequest,
    lock: &'a lockkeeper_crds::DistributedLockSpec,
    context: &'a Context<'a>,
}

impl Target<'_> {
    /// Adds everything to a pod that has nothing yet.
    fn add(&self, pod: &mut Value, position: usize, mode: Mode) -> Result<(), Refusal> {
        let folders: &[_] = match mode {
            Mode::Wrap => &[names::BINARY_DIR, names::RUN_DIR],
            Mode::Signal => &[],
        };
        check::mounts_are_free(self.container, folders)?;
        let wanted = self.request.resources.as_ref();
        let resources = resources::for_sidecar(self.typed, wanted, &self.context.sidecar.resources);
        let mut parts = Sidecar {
            lock: (&self.request.lock, self.lock),
            env: Vec::new(),
            user: User::Plain(sidecar::plain_user(self.typed)),
            resources: resources.clone(),
            ready_when_held: self.ready_when_held(),
            gates: mode == Mode::Signal,
        };
        if self.lock.mode == LockMode::ReadWrite {
            let access = self.request.access.as_str();
            parts.env.push(environment::var("LOCKKEEPER_ACCESS", access));
        }
        match mode {
            Mode::Wrap => {
                // Who may guard. A user that only the node will know, by its name in the image, leaves that to whoever
                // reaches the socket: the keeper and this container alone have its volume.
                let user = signal::known_user(self.container, self.typed, self.context.image.ok());
                let user = user.map_or_else(|| "any".to_owned(), |user| user.to_string());
                parts.env.push(environment::var("LOCKKEEPER_GUARD_USER", user));
                let guarded = guarded(pod, position);
                let token = self.context.app_token;
                let originals = probes::redirect(guarded, token)?;
                if !originals.is_empty() {
                    parts
                        .env
                        .push(environment::var("LOCKKEEPER_APP_TOKEN", token.as_str()));
                    parts.env.push(environment::var(
                        "LOCKKEEPER_APP_PROBES",
                        Value::Object(originals),
                    ));
                }
            }
            Mode::Signal => {
                check::pauses(self.request, self.lock, self.container)?;
                if self.spec.share_process_namespace == Some(false) {
                    return Err(Refusal::NotShared(self.container.name.clone()));
                }
                parts.user = signal::user(self.container, self.typed, self.context.image.ok())?;
                parts.env.push(signal::guarded(self.container));
            }
        }
        let sidecar = parts.container(self.typed, self.context);
        let spec = object(pod, "spec");
        push(spec, "volumes", &sidecar::run_volume());
        push(spec, "volumes", &sidecar::auth_volume(self.lock));
        if mode == Mode::Wrap {
            push(spec, "volumes", &sidecar::binary_volume(self.context));
            if !self.context.cluster.image_volumes {
                push(
                    spec,
                    "initContainers",
                    &sidecar::install(self.typed, resources, self.context),
                );
            }
        }
        push(spec, "initContainers", &sidecar);
        self.repair(pod, position, mode)
    }

    /// What must be so however often it is done.
    fn repair(&self, pod: &mut Value, position: usize, mode: Mode) -> Result<(), Refusal> {
        let container = guarded(pod, position);
        match mode {
            Mode::Wrap => {
                command::wrap(container, self.context.image).map_err(|problem| Refusal::NoCommand {
                    container: self.container.name.clone(),
                    problem,
                    signal: String::new(),
                })?;
                push(
                    container,
                    "volumeMounts",
                    &sidecar::mount(names::BINARY_VOLUME, names::BINARY_DIR, true),
                );
                push(
                    container,
                    "volumeMounts",
                    &sidecar::mount(names::RUN_VOLUME, names::RUN_DIR, false),
                );
            }
            Mode::Signal => {
                push(container, "env", &signal::gate());
                object(pod, "spec").insert("shareProcessNamespace".to_owned(), json!(true));
            }
        }
        move_last(object(pod, "spec"));
        Ok(())
    }

    fn ready_when_held(&self) -> bool {
        match self.request.readiness {
            Readiness::Holder => true,
            Readiness::Queued => false,
            Readiness::Auto => self.context.replicas == Replicas::One,
        }
    }
}

/// Pods that a kubelet shows of its own files exist already; nobody can change them.
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
    inits.find(|container| container.name == names::SIDECAR)
}

/// Writes down on the pod what it got.
fn mark(pod: &mut Value, target: &Target<'_>, mode: Mode) {
    let metadata = object(pod, "metadata");
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    labels[keys::LOCK] = json!(target.request.lock);
    // In the place of `auto`, say. A label, too, since people select by it.
    labels[keys::GUARD] = json!(mode.as_str());
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    annotations[keys::LOCK] = json!(target.request.lock);
    annotations[keys::GUARD] = json!(mode.as_str());
    // Another injector may put a container of its own before it.
    annotations[keys::CONTAINER] = json!(target.container.name);
    annotations[keys::ENSEMBLE] = json!(target.context.ensemble);
    if annotations.get(keys::INJECTED).is_none() {
        // Not again: the sidecar keeps what it has.
        annotations[keys::SETTINGS] = json!(settings::word_of(target.lock));
        annotations[keys::INJECTED] = json!(env!("CARGO_PKG_VERSION"));
    }
}

fn guarded(pod: &mut Value, position: usize) -> &mut Map<String, Value> {
    pod["spec"]["containers"][position]
        .as_object_mut()
        .expect("the pod was read as one before")
}

fn object<'a>(pod: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !pod[field].is_object() {
        pod[field] = json!({});
    }
    pod[field].as_object_mut().expect("it was just made one")
}

fn object_of(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Adds to a list, unless an entry of the same name and place is there.
fn push(parent: &mut Map<String, Value>, field: &str, entry: &impl serde::Serialize) {
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

fn move_last(spec: &mut Map<String, Value>) {
    if let Some(inits) = spec.get_mut("initContainers").and_then(Value::as_array_mut)
        && let Some(position) = inits
            .iter()
            .position(|container| container["name"] == names::SIDECAR)
    {
        let sidecar = inits.remove(position);
        inits.push(sidecar);
    }
}
