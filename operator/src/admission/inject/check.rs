//! Checks on a pod before anything is added to it.

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec, VolumeMount};
use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_crds::keys::{self, LockRequest};
use lockkeeper_crds::lock::{OnLoss, OnSuspect};

use serde_json::Value;

use super::chosen::{DEFAULT_CONTAINER, Said, chosen};
use super::context::Context;
use super::refusal::Refusal;
use super::{environment, names, signal};

/// Refuses pods that cannot be guarded at all.
///
/// # Errors
/// The first reason.
pub(crate) fn pod(object: &Value, spec: &PodSpec) -> Result<(), Refusal> {
    if is_windows(&object["spec"]) {
        return Err(Refusal::Windows);
    }
    if spec.host_pid == Some(true) {
        return Err(Refusal::HostPid);
    }
    Ok(())
}

/// Whether a pod with this `spec` says that it runs on Windows.
pub(crate) fn is_windows(spec: &Value) -> bool {
    spec["os"]["name"] == "windows" || spec["nodeSelector"]["kubernetes.io/os"] == "windows"
}

/// Refuses pods with parts that are named as ours and are not: only for pods without a sidecar.
///
/// # Errors
/// The first name that is taken.
pub(crate) fn names_are_free(spec: &PodSpec) -> Result<(), Refusal> {
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    for name in [keys::SIDECAR, names::INSTALL] {
        if containers.clone().any(|container| container.name == name) {
            return Err(Refusal::NameTaken {
                kind: "container",
                name,
            });
        }
    }
    for name in [names::BINARY_VOLUME, names::RUN_VOLUME, names::AUTH_VOLUME] {
        let mut mounts = containers
            .clone()
            .flat_map(|container| container.volume_mounts.iter().flatten());
        let is_there = spec.volumes.iter().flatten().any(|volume| volume.name == name);
        // The volume would be there after us: with the socket at which a keeper is expected, or with an identity.
        if is_there || mounts.any(|mount| mount.name == name) {
            return Err(Refusal::NameTaken { kind: "volume", name });
        }
    }
    let has_port = |container: &&Container| {
        container
            .ports
            .iter()
            .flatten()
            .any(|port| port.container_port == i32::from(names::PORT))
    };
    match containers.find(has_port) {
        Some(container) => Err(Refusal::PortTaken(container.name.clone())),
        None => Ok(()),
    }
}

/// Refuses a sidecar that was injected for another lock, ensemble or container, as in a copy of a pod whose
/// keys were changed: it would guard by the wrong lock, or not at all.
///
/// # Errors
/// The first variable that differs.
pub(crate) fn is_for(
    sidecar: &Container,
    container: &Container,
    lock: &str,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let by_signals = signal::is_chosen(sidecar).then(|| signal::guarded(container));
    let common = [
        environment::of_name(lock, context),
        environment::of_ensemble(context),
    ];
    for wanted in common.into_iter().chain(by_signals) {
        let has = sidecar.env.iter().flatten().find(|var| var.name == wanted.name);
        if has != Some(&wanted) {
            let value = |var: &EnvVar| var.value.clone().unwrap_or_default();
            return Err(Refusal::OtherSidecar {
                problem: format!(
                    "its {} is `{}` and not `{}`",
                    wanted.name,
                    has.map(value).unwrap_or_default(),
                    value(&wanted)
                ),
            });
        }
    }
    Ok(())
}

/// Refuses a container to be guarded by signals that has a variable of its own in the place of the gate: the kubelet would
/// start it without the lock.
///
/// # Errors
/// The name of the variable.
pub(crate) fn variable_is_free(container: &Container) -> Result<(), Refusal> {
    let gate = signal::gate();
    let is_taken = |var: &EnvVar| var.name == gate.name && *var != gate;
    match container.env.iter().flatten().any(is_taken) {
        true => Err(Refusal::NameTaken {
            kind: "variable",
            name: names::TOKEN,
        }),
        false => Ok(()),
    }
}

/// Refuses a wrapped container that mounts something of its own in our folders: in the place of the guard, it would start
/// the application without one.
///
/// # Errors
/// The first path.
pub(crate) fn mounts_are_free(container: &Container) -> Result<(), Refusal> {
    let mounts = container.volume_mounts.iter().flatten();
    let of_user = mounts.filter(|mount| !is_ours(mount));
    let devices = container.volume_devices.iter().flatten();
    let paths = of_user.map(|mount| &mount.mount_path);
    match paths
        .chain(devices.map(|device| &device.device_path))
        .find(|path| may_be_in_our_folders(path))
    {
        Some(path) => Err(Refusal::MountTaken {
            container: container.name.clone(),
            path: path.clone(),
        }),
        None => Ok(()),
    }
}

/// [`names::RUN_DIR`] in most images, in which `/var/run` is a link to `/run`.
const LINKED_RUN_DIR: &str = "/var/run/lockkeeper";

fn is_ours(mount: &VolumeMount) -> bool {
    let is_whole = mount.sub_path.is_none() && mount.sub_path_expr.is_none();
    let folder = match mount.name.as_str() {
        names::BINARY_VOLUME => names::BINARY_DIR,
        names::RUN_VOLUME => names::RUN_DIR,
        _ => return false,
    };
    is_whole && mount.mount_path == folder
}

/// A path with `..` leads wherever the links of the image do.
fn may_be_in_our_folders(path: &str) -> bool {
    let parts = || path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let is_in = |folder: &str| {
        let mut parts = parts();
        folder.split('/').skip(1).all(|part| parts.next() == Some(part))
    };
    let ours = [names::BINARY_DIR, names::RUN_DIR, LINKED_RUN_DIR];
    parts().any(|part| part == "..") || ours.into_iter().any(is_in)
}

/// The position of the guarded container, and how it was chosen.
///
/// # Errors
/// As [`chosen`].
pub(crate) fn guarded(pod: &Pod, request: &LockRequest) -> Result<(usize, Said), Refusal> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let names = containers.map(|container| container.name.as_str());
    let annotations = pod.metadata.annotations.as_ref();
    let default = annotations.and_then(|annotations| annotations.get(DEFAULT_CONTAINER));
    chosen(
        request.container.as_deref(),
        default.map(String::as_str),
        &names.collect::<Vec<_>>(),
    )
}

/// Refuses settings of a lock that its sidecars would refuse.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn lock(
    request: &LockRequest,
    spec: &DistributedLockSpec,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if spec.zookeeper.is_none() && context.sidecar.connect.is_none() {
        return Err(Refusal::NoEnsemble(request.lock.clone()));
    }
    spec.validate(context.sidecar.tick_time)
        .map_err(|problem| Refusal::InvalidLock {
            name: request.lock.clone(),
            problem: problem.to_string(),
        })?;
    Ok(request.check(spec)?)
}

/// Refuses pauses where the kubelet would restart what is paused: it asks the application itself. A readiness probe
/// may stay: what it executes is stopped like the rest, and the container is not ready then.
///
/// # Errors
/// When there is a liveness or startup probe and the lock pauses.
pub(crate) fn pauses(
    request: &LockRequest,
    spec: &DistributedLockSpec,
    container: &Container,
) -> Result<(), Refusal> {
    let field = match (spec.on_loss, spec.on_suspect) {
        (OnLoss::Pause, _) => "onLoss",
        (_, OnSuspect::Pause) => "onSuspect",
        _ => return Ok(()),
    };
    if container.liveness_probe.is_none() && container.startup_probe.is_none() {
        return Ok(());
    }
    Err(Refusal::PauseWithProbes {
        lock: request.lock.clone(),
        container: container.name.clone(),
        field,
    })
}
