//! What is used of the metadata of an object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use lockkeeper_crds::keys::{self, FINALIZER, HANDOFF, ROTATE};
use serde::{Deserialize, Deserializer};

use super::finalizers::{self, Finalizers};
use super::words::{Word, each, few};

/// Annotation of a ReplicaSet: the higher, the newer; a rollback gives the old one a new number.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";

/// How many pods a Deployment wants, on each of its ReplicaSets (`pkg/controller/deployment/util`): during
/// a rollout a ReplicaSet itself wants fewer.
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";

const LABELS: [&str; 4] = [
    keys::LOCK,
    keys::ROLE,
    "pod-template-hash",
    "controller-revision-hash",
];

pub(super) const ANNOTATIONS: [&str; 10] = [
    keys::LOCK,
    keys::ENSEMBLE,
    keys::SETTINGS,
    keys::INJECTED,
    keys::GUARD,
    keys::CONTAINER,
    HANDOFF,
    ROTATE,
    REVISION,
    DESIRED_REPLICAS,
];

/// Defines an object of `$kind` with these fields beside its metadata.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident of $kind:ty { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $name {
            /// What is used of it.
            #[serde(default, deserialize_with = "crate::kubernetes::objects::metadata::metadata")]
            pub(crate) metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $($(#[$field_doc])* #[serde(default)] pub $field: $type,)*
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::kind(&())
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::group(&())
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::version(&())
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(super) use part;

/// An object of any kind, of which the API server tells the metadata alone.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MetadataPart {
    /// What is used of it.
    #[serde(deserialize_with = "metadata")]
    pub(crate) metadata: ObjectMeta,
}

/// Metadata: of annotations and labels those that are read here, of owners the one that controls.
pub(crate) fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Few {
        name: Option<Word>,
        namespace: Option<Word>,
        uid: Option<Word>,
        resource_version: Option<Word>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        #[serde(default, deserialize_with = "labels")]
        labels: Option<BTreeMap<String, Word>>,
        #[serde(default, deserialize_with = "annotations")]
        annotations: Option<BTreeMap<String, Word>>,
        #[serde(default, deserialize_with = "controller")]
        owner_references: Option<Owner>,
        #[serde(default, deserialize_with = "finalizers::positions")]
        finalizers: Finalizers,
    }
    let few = Few::deserialize(deserializer)?;
    let words = |map: Option<BTreeMap<String, Word>>| {
        map.map(|map| map.into_iter().map(|(key, Word(value))| (key, value)).collect())
    };
    let ours = few.finalizers.ours.map(|_| FINALIZER.to_owned());
    Ok(ObjectMeta {
        name: few.name.map(String::from),
        namespace: few.namespace.map(String::from),
        uid: few.uid.map(String::from),
        resource_version: few.resource_version.map(String::from),
        generation: few.generation,
        creation_timestamp: few.creation_timestamp,
        deletion_timestamp: few.deletion_timestamp,
        labels: words(few.labels),
        annotations: words(few.annotations),
        owner_references: few.owner_references.map(|owner| vec![owner.into()]),
        finalizers: (few.finalizers.count > 0).then(|| ours.into_iter().collect()),
        ..ObjectMeta::default()
    })
}

/// An entry of `ownerReferences`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: Word,
    kind: Word,
    name: Word,
    uid: Word,
    controller: Option<bool>,
}

impl From<Owner> for OwnerReference {
    fn from(owner: Owner) -> Self {
        Self {
            api_version: owner.api_version.into(),
            kind: owner.kind.into(),
            name: owner.name.into(),
            uid: owner.uid.into(),
            controller: owner.controller,
            block_owner_deletion: None,
        }
    }
}

fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, Word>>, D::Error> {
    few(deserializer, &LABELS)
}

fn annotations<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, Word>>, D::Error> {
    few(deserializer, &ANNOTATIONS)
}

fn controller<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Owner>, D::Error> {
    each(deserializer, |found: &mut Option<Owner>, owner: Owner| {
        if found.is_none() && owner.controller == Some(true) {
            *found = Some(owner);
        }
    })
}
