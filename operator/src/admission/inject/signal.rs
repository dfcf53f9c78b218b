//! Guarding by signals: the guard is in the sidecar, and the kubelet gates each start.

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, FileKeySelector, Pod};
use serde_json::{Map, Value};

use super::context::ImageConfig;
use super::json::object_in;
use super::refusal::Refusal;
use super::sidecar::User;
use super::{environment, names};

/// Variable of the sidecar that names the container to guard by signals.
const CONTAINER: &str = "LOCKKEEPER_CONTAINER";

/// Whether a sidecar guards by signals.
pub(crate) fn is_chosen(sidecar: &Container) -> bool {
    sidecar.env.iter().flatten().any(|var| var.name == CONTAINER)
}

/// Variable of the sidecar that names the container.
pub(crate) fn guarded(container: &Container) -> EnvVar {
    environment::var(CONTAINER, &container.name)
}

/// A variable that the kubelet reads from the lease file before each start of the container: the file is there only
/// while the lock is held, and without it the kubelet does not start the container.
pub(crate) fn gate() -> EnvVar {
    EnvVar {
        name: names::TOKEN.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            file_key_ref: Some(FileKeySelector {
                volume_name: names::RUN_VOLUME.to_owned(),
                path: names::LEASE_FILE.to_owned(),
                key: names::TOKEN.to_owned(),
                optional: Some(false),
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// The user that the pod states for the guarded container.
pub(crate) fn stated_user(container: &Container, pod: &Pod) -> Option<i64> {
    let own = container
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_user);
    own.or_else(|| pod.spec.as_ref()?.security_context.as_ref()?.run_as_user)
}

/// The user of the guarded container, if the pod states it, or its image does by a number.
pub(crate) fn known_user(container: &Container, pod: &Pod, image: Option<&ImageConfig>) -> Option<i64> {
    let of_image = || match image?.user.split(':').next() {
        None | Some("" | "root") => Some(0),
        Some(user) => user.parse().ok(),
    };
    stated_user(container, pod).or_else(of_image)
}

/// Writes the user that only the image states into the guarded container, so that the container keeps the guard's user
/// when another image comes behind the tag or into the running pod. The group stays as it is: of an image, kubelets take a
/// user's number alone (`getImageUser` of the kubelet, `getUserFromImage` of containerd), as if it were `runAsUser`.
pub(super) fn pin_user(
    guarded: &mut Map<String, Value>,
    container: &Container,
    pod: &Pod,
    image: Option<&ImageConfig>,
) {
    if stated_user(container, pod).is_some() {
        return;
    }
    if let Some(user) = known_user(container, pod, image).filter(|user| *user != 0) {
        object_in(guarded, "securityContext").insert("runAsUser".to_owned(), user.into());
    }
}

/// The user of the sidecar: the application's own, which may signal it without any capability (`kill(2)`), or root
/// with `KILL`. Capabilities are effective for root only.
///
/// # Errors
/// When it would have to be root and the pod forbids that.
pub(crate) fn user(container: &Container, pod: &Pod, image: Option<&ImageConfig>) -> Result<User, Refusal> {
    match known_user(container, pod, image) {
        Some(user) if user != 0 => Ok(User::Plain(user)),
        _ if is_non_root(container, pod) => Err(Refusal::UnknownUser(container.name.clone())),
        _ => Ok(User::RootWithKill),
    }
}

fn is_non_root(container: &Container, pod: &Pod) -> bool {
    let own = container
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_non_root);
    let whole = || pod.spec.as_ref()?.security_context.as_ref()?.run_as_non_root;
    own.or_else(whole).unwrap_or(false)
}
