//! Of an object, no more than is used. Labels, owners, finalizers, volumes or variables may be as many as fit into an
//! object, and a list of small things takes many times its length once each has its type. What is not used is
//! skipped while it is read, so that it never has one.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{NamespaceResourceScope, ObjectList, Request, Resource};
use kube::{Api, Client};
use lockkeeper_crds::lock::{DistributedLockSpec, DistributedLockStatus};
use lockkeeper_crds::{DistributedLock, keys};
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::controller::build::{FINALIZER, HANDOFF};
use crate::secrets::{AUTH, CA, CERTIFICATE, KEY, ROTATE};

mod finalizers;
mod pods;
mod workloads;

pub use finalizers::Finalizers;
pub use pods::{ContainerPart, ContainerStatusPart, PodPart, PodSpecPart, PodStatusPart};
pub use workloads::{
    AutoscalerPart, ControllerRevisionPart, DaemonSetPart, DeploymentPart, JobPart, ReplicaSetPart,
    ServiceAccountPart, StatefulSetPart, TemplatePart, is_deployment,
};

/// What is kept of a word that may be long, in bytes: one more than a name has (DNS subdomain, RFC 1123), so that
/// a longer one is that of nothing.
pub const LONGEST_WORD: usize = 254;

/// Objects in one page of a list.
pub const PAGE: u32 = 250;

/// How many full pages of a namespace's list are read.
const PAGES: usize = 40;

/// Annotation of a ReplicaSet: the higher, the newer; a rollback gives the old one a new number.
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// How many pods a Deployment wants, on each of its ReplicaSets (`pkg/controller/deployment/util`): during
/// a rollout a ReplicaSet itself wants fewer.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";

const LABELS: [&str; 4] = [
    keys::LOCK,
    keys::ROLE,
    "pod-template-hash",
    "controller-revision-hash",
];

const ANNOTATIONS: [&str; 10] = [
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

/// Keys of Secrets.
const DATA: [&str; 6] = [AUTH, CA, CERTIFICATE, KEY, ".dockerconfigjson", ".dockercfg"];

/// Defines an object of `$kind` with these fields beside its metadata.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident of $kind:ty { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// What is used of it.
            #[serde(default, deserialize_with = "crate::parts::metadata")]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
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
use part;

part! {
    /// A lock. Of its finalizers ours is kept; without any they are `None`.
    LockPart of DistributedLock {
        /// As its schema bounds it.
        spec: DistributedLockSpec,
        /// What the operator wrote.
        status: Option<DistributedLockStatus>,
    }
}

part! {
    /// A Secret with the keys that are used of any.
    SecretPart of Secret {
        /// Those.
        data: SecretData,
    }
}

/// An object of any kind, of which the API server tells the metadata alone.
#[derive(Clone, Debug, Deserialize)]
pub struct MetadataPart {
    /// What is used of it.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
}

/// What is used of a Secret.
#[derive(Clone, Debug, Default)]
pub struct SecretData(BTreeMap<String, ByteString>);

impl SecretData {
    /// Whether there is such a key.
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

impl From<LockPart> for DistributedLock {
    /// All locks are kept in memory: of their metadata no more than what is read of a lock.
    fn from(part: LockPart) -> Self {
        let LockPart {
            mut metadata,
            spec,
            status,
        } = part;
        metadata.labels = None;
        metadata.owner_references = None;
        if let Some(annotations) = &mut metadata.annotations {
            annotations.retain(|key, _| key == HANDOFF);
        }
        Self {
            metadata,
            spec,
            status,
        }
    }
}

impl From<SecretPart> for Secret {
    fn from(SecretPart { metadata, data }: SecretPart) -> Self {
        Self {
            metadata,
            data: Some(data.0),
            ..Self::default()
        }
    }
}

/// Reads a list page by page, and says whether that was all of it.
///
/// # Errors
/// Those of the API server.
pub async fn list<P>(api: &Api<P>, chosen: ListParams, mut take: impl FnMut(P)) -> Result<bool, kube::Error>
where
    P: Clone + DeserializeOwned + fmt::Debug,
{
    let mut params = chosen.limit(PAGE);
    for _ in 0..PAGES {
        let ObjectList { metadata, items, .. } = api.list(&params).await?;
        items.into_iter().for_each(&mut take);
        match metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// Changes an object of kind `K`; the answer is its metadata alone.
///
/// # Errors
/// Those of the API server.
pub async fn patch<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &Patch<impl Serialize + fmt::Debug>,
) -> Result<MetadataPart, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let request = Request::new(K::url_path(&(), Some(namespace)));
    let request = request.patch_metadata(name, &PatchParams::default(), patch);
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}

/// The beginning of a word that may be long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(pub String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cut;
        impl Visitor<'_> for Cut {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, word: &str) -> Result<Word, E> {
                Ok(Word(word[..word.floor_char_boundary(LONGEST_WORD)].to_owned()))
            }
        }
        deserializer.deserialize_str(Cut)
    }
}

impl From<Word> for String {
    fn from(Word(word): Word) -> Self {
        word
    }
}

/// Reads a list, or nothing, one element after the other.
pub(crate) fn each<'de, D, T, A>(deserializer: D, add: impl FnMut(&mut A, T)) -> Result<A, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    A: Default,
{
    struct Each<T, A, F>(F, PhantomData<(T, A)>);
    impl<'de, T: Deserialize<'de>, A: Default, F: FnMut(&mut A, T)> Visitor<'de> for Each<T, A, F> {
        type Value = A;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E>(self) -> Result<A, E> {
            Ok(A::default())
        }

        fn visit_seq<S: SeqAccess<'de>>(mut self, mut list: S) -> Result<A, S::Error> {
            let mut all = A::default();
            while let Some(element) = list.next_element()? {
                (self.0)(&mut all, element);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_any(Each(add, PhantomData))
}

/// Reads these entries of a map, or of nothing.
fn few<'de, D, V>(
    deserializer: D,
    wanted: &'static [&'static str],
) -> Result<Option<BTreeMap<String, V>>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct Few<V>(&'static [&'static str], PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for Few<V> {
        type Value = Option<BTreeMap<String, V>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut found = BTreeMap::new();
            while let Some(Word(key)) = map.next_key()? {
                if self.0.contains(&key.as_str()) {
                    found.insert(key, map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(Some(found))
        }
    }
    deserializer.deserialize_any(Few(wanted, PhantomData))
}

impl<'de> Deserialize<'de> for SecretData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        few(deserializer, &DATA).map(|data| Self(data.unwrap_or_default()))
    }
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

#[cfg(test)]
mod tests;
