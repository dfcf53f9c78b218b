//! What is used of a pod: its identity, the commands of its containers, and their states.

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Deserializer};

use super::metadata::part;
use super::words::{Word, each};

part! {
    PodPart of Pod {
        spec: Option<PodSpecPart>,
        status: Option<PodStatusPart>,
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpecPart {
    /// Name of the node that it was bound to; it never changes after that.
    #[serde(default)]
    pub(crate) node_name: Option<Word>,
    /// Those that run beside each other.
    #[serde(default, deserialize_with = "list")]
    pub(crate) containers: Vec<ContainerPart>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ContainerPart {
    pub(crate) name: String,
    /// The first word of its command.
    #[serde(default, rename = "command", deserialize_with = "first")]
    pub(crate) program: Option<Word>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodStatusPart {
    #[serde(default)]
    pub(crate) phase: Option<String>,
    #[serde(default, deserialize_with = "list")]
    pub(crate) init_container_statuses: Vec<ContainerStatusPart>,
    #[serde(default, deserialize_with = "list")]
    pub(crate) container_statuses: Vec<ContainerStatusPart>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatusPart {
    pub(crate) name: String,
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
    pub(crate) fn runs(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.running.is_some())
    }

    /// How often it has ended. The kubelet counts an end when it starts the container again, and shows it before that.
    pub(crate) fn ends(&self) -> i32 {
        let has_ended =
            |state: &Option<State>| state.as_ref().is_some_and(|state| state.terminated.is_some());
        let is_uncounted = has_ended(&self.state) || (has_ended(&self.last_state) && !self.runs());
        self.restart_count.saturating_add(i32::from(is_uncounted))
    }

    /// Why it waits.
    pub(crate) fn waits_for(&self) -> Option<&str> {
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
