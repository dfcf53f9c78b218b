//! Which of the two guards a pod gets: a choice by what is known for certain.

use lockkeeper_crds::keys::Guard;
use serde_json::json;

use super::command;
use super::json::object_of;
use super::refusal::Refusal;
use super::target::Target;

/// Where the guard runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As the first process of the guarded container.
    Wrap,
    /// In the sidecar.
    Signal,
}

impl Mode {
    /// As users write it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Wrap => Guard::Wrap.as_str(),
            Self::Signal => Guard::Signal.as_str(),
        }
    }
}

impl Target<'_> {
    pub(super) fn mode(&self) -> Result<(Mode, Vec<String>), Refusal> {
        let name = || self.container.name.clone();
        let ungated = self.ungated();
        let can_signal = ungated.is_none();
        // What else a user could do, or why it would not do.
        let instead = |words: &str| match (self.request.guard, &ungated) {
            (_, None) => words.to_owned(),
            (Guard::Wrap, Some(_)) => String::new(),
            (_, Some(why)) => format!("; it cannot be guarded by signals either, since {why}"),
        };
        let obstacle = self.obstacle_to_wrap();
        match (self.request.guard, obstacle) {
            (Guard::Wrap | Guard::Auto, None) => Ok((Mode::Wrap, Vec::new())),
            (Guard::Signal, _) if can_signal => Ok((Mode::Signal, Vec::new())),
            (Guard::Signal, _) => Err(Refusal::SignalUnsupported {
                container: name(),
                why: ungated.unwrap_or_default(),
            }),
            (Guard::Auto, Some(Obstacle::Shared)) if can_signal => Ok((Mode::Signal, Vec::new())),
            (Guard::Auto, Some(Obstacle::Command(problem))) if can_signal => Ok((
                Mode::Signal,
                vec![format!(
                    "the command of container `{}` is not known ({problem}), so the sidecar guards it by signals: \
                     set `command` in the pod to have it wrapped, which restarts it faster and needs no shared processes",
                    name()
                )],
            )),
            (_, Some(Obstacle::Shared)) => Err(Refusal::SharedProcesses {
                container: name(),
                signal: instead(" or set lockkeeper.io/guard to `signal`"),
            }),
            (_, Some(Obstacle::Command(problem))) => Err(Refusal::NoCommand {
                container: name(),
                problem,
                signal: instead(" or lockkeeper.io/guard to `signal`"),
            }),
        }
    }

    /// Why a kubelet might start the container while the lock is not held.
    fn ungated(&self) -> Option<String> {
        let cluster = self.context.cluster;
        if !cluster.is_known {
            return Some("the operator has not found out what the API server can do: see its log".to_owned());
        }
        if !cluster.file_key_ref {
            return Some("the API server has no fileKeyRef (Kubernetes 1.35)".to_owned());
        }
        let node = self.context.ungated?;
        Some(format!(
            "{node}, which would start it without looking for the lock: keep the pod to nodes with 1.35 or newer by \
             nodeSelector"
        ))
    }

    fn obstacle_to_wrap(&self) -> Option<Obstacle> {
        if self.spec.share_process_namespace == Some(true) {
            return Some(Obstacle::Shared);
        }
        let mut trial = object_of(&json!({ "command": self.container.command, "args": self.container.args }));
        command::wrap(&mut trial, self.context.image)
            .err()
            .map(Obstacle::Command)
    }
}

/// Why a container cannot be wrapped.
enum Obstacle {
    Shared,
    Command(String),
}
