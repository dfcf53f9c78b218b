//! What is used of a pod: its identity, the commands of its containers, and their states.

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Deserializer};

use super::metadata::part;
use super::words::{Word, each};

part! {
    /// A pod.
    PodPart of Pod {
        /// Its containers.
        spec: Option<PodSpecPart>,
        /// How they are.
        status: Option<PodStatusPart>,
    }
}

/// Of `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpecPart {
    /// Name of the node that it was bound to; it never changes after that.
    #[serde(default)]
    pub node_name: Option<Word>,
    /// Those that run beside each other.
    #[serde(default, deserialize_with = "list")]
    pub containers: Vec<ContainerPart>,
}

/// Of a container.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ContainerPart {
    /// Its name.
    pub name: String,
    /// The first word of its command.
    #[serde(default, rename = "command", deserialize_with = "first")]
    pub program: Option<Word>,
}

/// Of `status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatusPart {
    /// Its phase.
    #[serde(default)]
    pub phase: Option<String>,
    /// Of the init containers.
    #[serde(default, deserialize_with = "list")]
    pub init_container_statuses: Vec<ContainerStatusPart>,
    /// Of the others.
    #[serde(default, deserialize_with = "list")]
    pub container_statuses: Vec<ContainerStatusPart>,
}

/// How a container is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatusPart {
    /// Its name.
    pub name: String,
    #[serde(default)]
    state: Option<State>,
    #[serde(default)]
    last_state: Option<State>,
    #[serde(default)]
    restart_count: i32,
}

#[derive(Clone, Debug, Deserialize)]
struct State {
    running: Option<Nothing>,
    waiting: Option<Waiting>,
    terminated: Option<Nothing>,
}

/// Only its presence is used.
#[derive(Clone, Debug, Deserialize)]
struct Nothing {}

#[derive(Clone, Debug, Deserialize)]
struct Waiting {
    reason: Option<Word>,
}

impl ContainerStatusPart {
    /// Whether it runs.
    pub fn runs(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.running.is_some())
    }

    /// How often it has ended. The kubelet counts an end when it starts the container again, and shows it before that.
    pub fn ends(&self) -> i32 {
        let has_ended =
            |state: &Option<State>| state.as_ref().is_some_and(|state| state.terminated.is_some());
        let is_uncounted = has_ended(&self.state) || (has_ended(&self.last_state) && !self.runs());
        self.restart_count.saturating_add(i32::from(is_uncounted))
    }

    /// Why it waits.
    pub fn waits_for(&self) -> Option<&str> {
        let reason = self.state.as_ref()?.waiting.as_ref()?.reason.as_ref()?;
        Some(&reason.0)
    }
}

fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    each(deserializer, |all: &mut Vec<T>, one| all.push(one))
}

fn first<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Word>, D::Error> {
    each(deserializer, |first: &mut Option<Word>, word| {
        first.get_or_insert(word);
    })
}
