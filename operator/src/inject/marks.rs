//! What the labels and annotations of a pod or workload ask for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lockkeeper_crds::keys;

use super::names;
use super::refusal::Refusal;

/// The keys that users write.
pub const USER_KEYS: [&str; 5] = [
    keys::LOCK,
    keys::CONTAINER,
    keys::GUARD,
    keys::READINESS,
    keys::ACCESS,
];

/// Everything that the keys say, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Name of the lock.
    pub lock: String,
    /// The guarded container; `None` for the first one.
    pub container: Option<String>,
    /// How it is guarded.
    pub guard: Guard,
    /// When the pod is ready.
    pub readiness: Readiness,
    /// Side of a read/write lock.
    pub access: Option<Access>,
}

/// How an application is guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// Wrapped where its command is known.
    #[default]
    Auto,
    /// The guard is the first process of the container.
    Wrap,
    /// The guard is in the sidecar.
    Signal,
}

/// When a pod is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// `Holder` for one replica, `Queued` for more.
    #[default]
    Auto,
    /// While it holds the lock.
    Holder,
    /// While it is in the queue.
    Queued,
}

/// Side of a read/write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Alone.
    Write,
    /// Beside other readers.
    Read,
}

impl Marks {
    /// Reads labels and annotations; `None` where no lock is named.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn parse(metadata: &ObjectMeta) -> Result<Option<Self>, Refusal> {
        let Some(lock) = value(metadata, keys::LOCK)? else {
            return Ok(None);
        };
        if !is_dns_label(lock) {
            return Err(Refusal::LockName {
                key: keys::LOCK,
                value: lock.to_owned(),
            });
        }
        known_keys(metadata)?;
        Ok(Some(Self {
            lock: lock.to_owned(),
            container: value(metadata, keys::CONTAINER)?.map(str::to_owned),
            guard: choice(
                metadata,
                keys::GUARD,
                &[
                    ("auto", Guard::Auto),
                    ("wrap", Guard::Wrap),
                    ("signal", Guard::Signal),
                ],
            )?
            .unwrap_or_default(),
            readiness: choice(
                metadata,
                keys::READINESS,
                &[
                    ("auto", Readiness::Auto),
                    ("holder", Readiness::Holder),
                    ("queued", Readiness::Queued),
                ],
            )?
            .unwrap_or_default(),
            access: choice(
                metadata,
                keys::ACCESS,
                &[("write", Access::Write), ("read", Access::Read)],
            )?,
        }))
    }
}

/// What a key says, as annotation or label.
///
/// # Errors
/// When the two differ.
pub fn value<'a>(metadata: &'a ObjectMeta, key: &'static str) -> Result<Option<&'a str>, Refusal> {
    let of = |map: &'a Option<BTreeMap<String, String>>| map.as_ref()?.get(key).map(String::as_str);
    match (of(&metadata.annotations), of(&metadata.labels)) {
        (Some(annotation), Some(label)) if annotation != label => Err(Refusal::Contradiction {
            key,
            annotation: annotation.to_owned(),
            label: label.to_owned(),
        }),
        (annotation, label) => Ok(annotation.or(label)),
    }
}

fn choice<T: Copy>(
    metadata: &ObjectMeta,
    key: &'static str,
    values: &[(&'static str, T)],
) -> Result<Option<T>, Refusal> {
    let Some(text) = value(metadata, key)? else {
        return Ok(None);
    };
    match values.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(Some(*value)),
        None => Err(Refusal::UnknownValue {
            key,
            value: text.to_owned(),
            allowed: values
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// A misspelt key would silently be a default.
fn known_keys(metadata: &ObjectMeta) -> Result<(), Refusal> {
    let ours = |key: &&String| {
        key.strip_prefix(keys::GROUP)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let written = [keys::ROLE, names::INJECTED, names::COPIED];
    let all = metadata
        .annotations
        .iter()
        .chain(&metadata.labels)
        .flat_map(BTreeMap::keys);
    match all
        .filter(ours)
        .find(|key| !USER_KEYS.contains(&key.as_str()) && !written.contains(&key.as_str()))
    {
        Some(key) => Err(Refusal::UnknownKey {
            key: key.clone(),
            known: USER_KEYS.join(", "),
        }),
        None => Ok(()),
    }
}

/// A label of RFC 1123, as the names of Kubernetes: also a valid name of a node in ZooKeeper.
fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
