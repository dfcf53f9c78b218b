//! The sidecar container, the init container that copies its binary, and their volumes.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, ContainerRestartRule, ContainerRestartRuleOnExitCodes,
    EmptyDirVolumeSource, EnvVar, ExecAction, HTTPGetAction, ImageVolumeSource, KeyToPath, Lifecycle,
    LifecycleHandler, Pod, Probe, ProjectedVolumeSource, ResourceRequirements, SeccompProfile,
    SecretProjection, SecurityContext, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lockkeeper_crds::{DistributedLockSpec, keys};

use super::context::{Context, SidecarConfig};
use super::{environment, names};

/// A year of attempts, one each second: a sidecar that waits for the lock behind its startup probe must
/// not be killed for it, as it would lose its place in the queue.
const STARTUP_ATTEMPTS: i32 = 365 * 24 * 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Not root, without any capability.
    Plain(i64),
    /// Root with `KILL` alone, to signal an application of any user.
    RootWithKill,
}

/// What differs between pods.
pub(crate) struct Sidecar<'a> {
    /// Name and settings of the lock.
    pub(crate) lock: (&'a str, &'a DistributedLockSpec),
    /// Variables of this pod's sidecar, after those of the lock.
    pub(crate) env: Vec<EnvVar>,
    pub(crate) user: User,
    pub(crate) resources: ResourceRequirements,
    /// Ready while it holds the lock, or while it is in the queue.
    pub(crate) ready_when_held: bool,
    /// Guards by signals: gates the pod.
    pub(crate) gates: bool,
}

impl Sidecar<'_> {
    /// The container for `pod`, which does not have it yet.
    pub(crate) fn container(self, pod: &Pod, context: &Context<'_>) -> Container {
        let (name, spec) = self.lock;
        let mut env = environment::of_lock(name, spec, context);
        env.extend(environment::of_pod(pod));
        env.extend(self.env);
        let ready = if self.ready_when_held {
            "/readyz"
        } else {
            "/queuedz"
        };
        Container {
            name: keys::SIDECAR.to_owned(),
            args: Some(vec!["sidecar".to_owned()]),
            env: Some(env),
            ports: Some(vec![ContainerPort {
                name: Some(keys::SIDECAR.to_owned()),
                container_port: names::PORT.into(),
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            }]),
            // A second is what a Service needs to follow a handoff; the kubelet asks on the same node.
            readiness_probe: Some(probe(ready, 1, 2)),
            liveness_probe: Some(probe("/livez", 10, 3)),
            startup_probe: self.gates.then(|| probe("/startupz", 1, STARTUP_ATTEMPTS)),
            restart_policy: Some("Always".to_owned()),
            restart_policy_rules: (self.gates && context.cluster.restart_all_containers).then(gate_anew),
            lifecycle: Some(Lifecycle {
                pre_stop: Some(LifecycleHandler {
                    exec: Some(ExecAction {
                        command: Some(vec![names::BINARY_DIR.to_owned(), "terminating".to_owned()]),
                    }),
                    ..LifecycleHandler::default()
                }),
                ..Lifecycle::default()
            }),
            volume_mounts: Some(vec![
                mount(names::RUN_VOLUME, names::RUN_DIR, false),
                mount(names::AUTH_VOLUME, names::AUTH_DIR, true),
            ]),
            security_context: Some(security(self.user)),
            resources: Some(self.resources),
            ..of_image(context.sidecar)
        }
    }
}

/// Copies the binary into [`names::BINARY_VOLUME`].
pub(crate) fn install(pod: &Pod, resources: ResourceRequirements, context: &Context<'_>) -> Container {
    Container {
        name: names::INSTALL.to_owned(),
        args: Some(vec!["install".to_owned(), names::INSTALL_DIR.to_owned()]),
        volume_mounts: Some(vec![mount(names::BINARY_VOLUME, names::INSTALL_DIR, false)]),
        security_context: Some(security(User::Plain(plain_user(pod)))),
        resources: Some(resources),
        ..of_image(context.sidecar)
    }
}

/// The pod's user unless that is root, so that a pod which may only run as certain users stays so.
pub(crate) fn plain_user(pod: &Pod) -> i64 {
    let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    security
        .and_then(|security| security.run_as_user)
        .filter(|user| *user != 0)
        .unwrap_or(names::USER)
}

/// The volume with the sockets. In memory, so that nothing of it outlives the pod or waits for a disk.
pub(crate) fn run_volume() -> Volume {
    Volume {
        name: names::RUN_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity("1Mi".to_owned())),
        }),
        ..Volume::default()
    }
}

pub(crate) fn binary_volume(context: &Context<'_>) -> Volume {
    let name = names::BINARY_VOLUME.to_owned();
    if context.cluster.image_volumes {
        return Volume {
            name,
            image: Some(ImageVolumeSource {
                reference: Some(context.sidecar.image.clone()),
                pull_policy: context.sidecar.pull_policy.clone(),
            }),
            ..Volume::default()
        };
    }
    Volume {
        name,
        empty_dir: Some(EmptyDirVolumeSource {
            medium: None,
            // The binary has some megabytes.
            size_limit: Some(Quantity("64Mi".to_owned())),
        }),
        ..Volume::default()
    }
}

pub(crate) fn auth_volume(spec: &DistributedLockSpec) -> Volume {
    let zookeeper = spec.zookeeper.as_ref();
    let secret = |name: &str| VolumeProjection {
        secret: Some(SecretProjection {
            name: name.to_owned(),
            ..SecretProjection::default()
        }),
        ..VolumeProjection::default()
    };
    let credentials = zookeeper.and_then(|zookeeper| zookeeper.credentials_secret.as_ref());
    let mut sources = vec![secret(
        credentials.map_or(names::CREDENTIALS_SECRET, |secret| secret.name.as_str()),
    )];
    if zookeeper.is_some()
        && let Some(projection) = &mut sources[0].secret
    {
        // The sidecar gets nothing else that a user keeps in it, and certificates in the
        // operator's are for its own ensemble.
        projection.items = Some(vec![KeyToPath {
            key: "auth".to_owned(),
            path: "auth".to_owned(),
            mode: None,
        }]);
    }
    sources.extend(
        zookeeper
            .and_then(|zookeeper| zookeeper.tls_secret.as_ref())
            .map(|tls| secret(&tls.name)),
    );
    Volume {
        name: names::AUTH_VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            // Any user of the sidecar reads them; no other container has the volume.
            default_mode: Some(0o444),
            sources: Some(sources),
        }),
        ..Volume::default()
    }
}

pub(crate) fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn of_image(sidecar: &SidecarConfig) -> Container {
    Container {
        image: Some(sidecar.image.clone()),
        image_pull_policy: sidecar.pull_policy.clone(),
        ..Container::default()
    }
}

/// Restarts all containers, behind the startup probe, when the sidecar asks for it (88), and when it ends with any
/// other code outside of [`names::NOTHING_LEFT`]: if the whole sidecar is killed, for example by the OOM killer
/// (137), nothing else stops the application. A kubelet does not restart pods in this way that are ending or have
/// completed.
fn gate_anew() -> Vec<ContainerRestartRule> {
    vec![ContainerRestartRule {
        action: "RestartAllContainers".to_owned(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: "NotIn".to_owned(),
            values: Some(names::NOTHING_LEFT.to_vec()),
        }),
    }]
}

/// What the level `restricted` of the Pod Security Standards asks for, apart from `KILL`.
fn security(user: User) -> SecurityContext {
    let (uid, add) = match user {
        User::Plain(uid) => (uid, None),
        User::RootWithKill => (0, Some(vec!["KILL".to_owned()])),
    };
    SecurityContext {
        run_as_user: Some(uid),
        run_as_non_root: Some(uid != 0),
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            add,
            drop: Some(vec!["ALL".to_owned()]),
        }),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..SecurityContext::default()
    }
}

fn probe(path: &str, period: i32, attempts: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(names::PORT.into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        failure_threshold: Some(attempts),
        ..Probe::default()
    }
}
