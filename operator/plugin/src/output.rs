//! How an answer is written.

use clap::ValueEnum;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_daemon::exit::Failure;
use serde::Serialize;

use crate::table;

/// The formats, with the names that kubectl gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For people, with more columns.
    Wide,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
    /// Only the names, for other commands of kubectl.
    Name,
}

impl Output {
    /// A list of locks; `with_namespace` where they are of several.
    pub(crate) fn list(self, locks: &[DistributedLock], with_namespace: bool) -> Result<String, Failure> {
        match self {
            Self::Table => Ok(table::list(locks, with_namespace, false, Timestamp::now())),
            Self::Wide => Ok(table::list(locks, with_namespace, true, Timestamp::now())),
            Self::Json => json(&locks),
            Self::Yaml => yaml(&locks),
            Self::Name => Ok(locks.iter().map(name).collect()),
        }
    }

    /// A lock of a list that has changed.
    pub(crate) fn changed(self, lock: &DistributedLock, with_namespace: bool) -> Result<String, Failure> {
        let wide = self == Self::Wide;
        match self {
            Self::Table | Self::Wide => Ok(table::row(lock, with_namespace, wide, Timestamp::now())),
            Self::Json => json(lock),
            Self::Yaml => yaml(lock).map(|text| format!("---\n{text}")),
            Self::Name => Ok(name(lock)),
        }
    }

    /// Everything about one lock.
    pub(crate) fn one(self, lock: &DistributedLock) -> Result<String, Failure> {
        match self {
            Self::Table | Self::Wide => Ok(table::describe(lock, Timestamp::now())),
            Self::Json => json(lock),
            Self::Yaml => yaml(lock),
            Self::Name => Ok(name(lock)),
        }
    }

    /// Something else, which people read as a text.
    pub(crate) fn text(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        match self {
            Self::Table | Self::Wide => Ok(text()),
            Self::Json => json(value),
            Self::Yaml => yaml(value),
            Self::Name => Err(Failure::usage(
                "-o name is for lists and single locks: take table, json or yaml",
            )),
        }
    }
}

/// As `kubectl get -o name` writes it.
fn name(lock: &DistributedLock) -> String {
    let kind = DistributedLock::kind(&()).to_lowercase();
    format!("{kind}.{}/{}\n", DistributedLock::group(&()), lock.name_any())
}

fn json(value: &(impl Serialize + ?Sized)) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map(|text| format!("{text}\n"))
        .map_err(|error| Failure::software(format!("cannot write JSON: {error}")))
}

fn yaml(value: &(impl Serialize + ?Sized)) -> Result<String, Failure> {
    serde_saphyr::to_string(&value)
        .map(|text| format!("{}\n", text.trim_end()))
        .map_err(|error| Failure::software(format!("cannot write YAML: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lock() -> DistributedLock {
        serde_json::from_value(json!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "report", "namespace": "shop"}, "spec": {},
        }))
        .unwrap()
    }

    #[test]
    fn names_are_those_that_other_commands_of_kubectl_take() {
        let locks = [lock(), lock()];
        let said = Output::Name.list(&locks, true).unwrap();
        assert_eq!(said, "distributedlock.lockkeeper.io/report\n".repeat(2));
        let refused = Output::Name.text(&lock(), || "it waits".to_owned()).unwrap_err();
        assert!(refused.sentence.contains("take table, json or yaml"), "{refused}");
    }

    #[test]
    fn json_and_yaml_have_the_same_content() {
        let json: serde_json::Value = serde_json::from_str(&Output::Json.one(&lock()).unwrap()).unwrap();
        let yaml: serde_json::Value = serde_saphyr::from_str(&Output::Yaml.one(&lock()).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert_eq!(json["metadata"]["name"], "report");
    }
}
