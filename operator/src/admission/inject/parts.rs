//! The parts that a pod gets: sidecar, guard, volumes and variables.

use lockkeeper_crds::keys::Readiness;
use lockkeeper_crds::lock::LockMode;
use serde_json::{Value, json};

use super::context::Replicas;
use super::json::{guarded, move_last, object, push};
use super::mode::Mode;
use super::refusal::Refusal;
use super::sidecar::{self, Sidecar, User};
use super::target::Target;
use super::{check, command, environment, names, probes, resources, signal};

impl Target<'_> {
    /// Adds everything to a pod that has nothing yet.
    pub(super) fn add(&self, pod: &mut Value, position: usize, mode: Mode) -> Result<(), Refusal> {
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
                // The user that may guard. If the image gives the user by name, only the node will know its number:
                // then every process that reaches the socket may guard, and only the keeper and this container have
                // its volume.
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
                signal::pin_user(
                    guarded(pod, position),
                    self.container,
                    self.typed,
                    self.context.image.ok(),
                );
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

    /// What every pass repeats.
    pub(super) fn repair(&self, pod: &mut Value, position: usize, mode: Mode) -> Result<(), Refusal> {
        let container = guarded(pod, position);
        match mode {
            Mode::Wrap => {
                check::mounts_are_free(self.container)?;
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
                check::variable_is_free(self.container)?;
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
