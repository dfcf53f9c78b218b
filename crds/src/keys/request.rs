//! The lock that labels and annotations ask for. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{
    ACCESS, CONTAINER, GROUP, GUARD, LOCK, OF_USERS, OURS, READINESS, SIDECAR_RESOURCES, SidecarResources,
};
use crate::lock::{DistributedLockSpec, LockMode};

/// Longest name of a lock or a container, in characters (RFC 1123).
const MAX_NAME: usize = 63;

/// A request of a pod to run under a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Name of the `DistributedLock`.
    pub lock: String,
    /// The guarded container; `None` for kubectl's default, or the first one.
    pub container: Option<String>,
    /// How the application is started and stopped.
    pub guard: Guard,
    /// What has to be true before the pod is ready.
    pub readiness: Readiness,
    /// Whether it wants to write, in a read/write lock.
    pub access: Access,
    /// Resources of the sidecar; `None` for the administrator's choice.
    pub resources: Option<SidecarResources>,
}

/// Why labels and annotations cannot be followed, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Label and annotation name different locks.
    #[error(
        "a pod can have one lock, and its label {LOCK} says `{label}` where its annotation says `{annotation}`: remove \
         one of them"
    )]
    TwoLocks {
        /// The lock in the label.
        label: String,
        /// The lock in the annotation.
        annotation: String,
    },
    /// A list, where the name of one lock is expected.
    #[error("a pod can have one lock, and {LOCK} names several (`{0}`): name one of them")]
    SeveralLocks(String),
    /// Label and annotation have different values for the same lock.
    #[error("the label {key} says `{label}` where the annotation says `{annotation}`: remove one of them")]
    Contradiction {
        /// The key of both.
        key: &'static str,
        /// The value of the label.
        label: String,
        /// The value of the annotation.
        annotation: String,
    },
    /// Not the name of a lock or of a container.
    #[error(
        "{key} is `{value}`, which cannot be the name of a {what}: it must be of 1 to 63 lower-case letters, digits \
         and dashes, with a letter or digit at both ends, such as {example}"
    )]
    Name {
        /// The key of the label or annotation.
        key: &'static str,
        /// What the user wrote.
        value: String,
        /// What the key should name.
        what: &'static str,
        /// A value that would be accepted.
        example: &'static str,
    },
    /// A value that the key does not accept.
    #[error("{key} is `{value}`, and must be one of {known}")]
    Value {
        /// The key of the label or annotation.
        key: &'static str,
        /// What the user wrote.
        value: String,
        /// The values that the key accepts, separated by commas.
        known: String,
    },
    /// Resources that are not valid for a container.
    #[error("{SIDECAR_RESOURCES} does not hold the resources of a container: {0}; write it as in {example}", example = SidecarResources::EXAMPLE)]
    Resources(String),
    /// A key of our group that does not exist.
    #[error("{0} is not known; the keys are {known}", known = OF_USERS.join(", "))]
    UnknownKey(String),
    /// Settings without a lock.
    #[error("{0} is there and {LOCK} is not: add it, with the name of a DistributedLock, or remove {0}")]
    WithoutLock(&'static str),
    /// A reader of a lock that has no readers.
    #[error(
        "{ACCESS} is `read`, and the DistributedLock `{0}` has mode Exclusive: set its mode to ReadWrite or remove \
         {ACCESS}"
    )]
    ReaderOfExclusive(String),
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $(#[$first_doc:meta])* $first:ident = $first_text:literal, $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            $first,
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// All values, the default first.
            pub const ALL: &[Self] = &[Self::$first, $(Self::$variant),+];

            /// The value as users write it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    Self::$first => $first_text,
                    $(Self::$variant => $text),+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        /// The error lists the known values.
        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL
                    .iter()
                    .find(|value| value.as_str() == text)
                    .copied()
                    .ok_or_else(|| Self::ALL.iter().map(|value| value.as_str()).collect::<Vec<_>>().join(", "))
            }
        }
    };
}

choice! {
    /// How the application of a pod is started and stopped.
    Guard {
        /// `wrap` if the command is known, otherwise `signal`.
        Auto = "auto",
        /// As a child of the guard, which is the first process of the container.
        Wrap = "wrap",
        /// By signals from the sidecar.
        Signal = "signal",
    }
}

choice! {
    /// What has to be true before a pod is ready.
    Readiness {
        /// `holder` for one replica, `queued` for more.
        Auto = "auto",
        /// While it holds the lock.
        Holder = "holder",
        /// While it stands in the queue or holds the lock.
        Queued = "queued",
    }
}

choice! {
    /// What a pod wants from a read/write lock.
    Access {
        /// To hold it alone.
        Write = "write",
        /// To hold it together with other readers.
        Read = "read",
    }
}

// === impl LockRequest ===

type Keys = BTreeMap<String, String>;

impl LockRequest {
    /// Reads the labels and annotations of a pod or of a pod template; `None` if they ask for no lock. Every key may be
    /// a label, an annotation, or both with the same value.
    ///
    /// # Errors
    /// The first error.
    pub fn parse(labels: Option<&Keys>, annotations: Option<&Keys>) -> Result<Option<Self>, KeyError> {
        if let Some(key) = unknown(labels).or_else(|| unknown(annotations)) {
            return Err(KeyError::UnknownKey(key.clone()));
        }
        let value = |key| agreed(key, labels, annotations);
        let Some(lock) = value(LOCK)? else {
            let set = |key: &&str| {
                [labels, annotations]
                    .into_iter()
                    .flatten()
                    .any(|keys| keys.contains_key(*key))
            };
            return match OF_USERS.into_iter().find(set) {
                Some(key) => Err(KeyError::WithoutLock(key)),
                None => Ok(None),
            };
        };
        if lock.contains([',', ' ', ';'])
            && lock
                .split([',', ' ', ';'])
                .filter(|name| !name.is_empty())
                .count()
                > 1
        {
            return Err(KeyError::SeveralLocks(lock.clone()));
        }
        Ok(Some(Self {
            lock: name(LOCK, lock, "lock", "report")?,
            container: match value(CONTAINER)? {
                Some(container) => Some(name(CONTAINER, container, "container", "app")?),
                None => None,
            },
            guard: choice(GUARD, value(GUARD)?)?,
            readiness: choice(READINESS, value(READINESS)?)?,
            access: choice(ACCESS, value(ACCESS)?)?,
            resources: match value(SIDECAR_RESOURCES)? {
                Some(json) => Some(json.parse().map_err(KeyError::Resources)?),
                None => None,
            },
        }))
    }

    /// Checks that the lock can do what the pod asks for.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check(&self, spec: &DistributedLockSpec) -> Result<(), KeyError> {
        match (spec.mode, self.access) {
            (LockMode::Exclusive, Access::Read) => Err(KeyError::ReaderOfExclusive(self.lock.clone())),
            (LockMode::Exclusive, Access::Write) | (LockMode::ReadWrite, _) => Ok(()),
        }
    }
}

/// A key of our group that does not exist.
fn unknown(keys: Option<&Keys>) -> Option<&String> {
    keys?.keys().find(|key| {
        let is_ours = key.strip_prefix(GROUP).is_some_and(|rest| rest.starts_with('/'));
        is_ours && !OF_USERS.contains(&key.as_str()) && !OURS.contains(&key.as_str())
    })
}

/// The common value of label and annotation.
///
/// # Errors
/// When they differ.
pub fn agreed<'a>(
    key: &'static str,
    labels: Option<&'a Keys>,
    annotations: Option<&'a Keys>,
) -> Result<Option<&'a String>, KeyError> {
    match (
        labels.and_then(|keys| keys.get(key)),
        annotations.and_then(|keys| keys.get(key)),
    ) {
        (Some(label), Some(annotation)) if label != annotation => {
            let (label, annotation) = (label.clone(), annotation.clone());
            Err(match key {
                LOCK => KeyError::TwoLocks { label, annotation },
                _ => KeyError::Contradiction {
                    key,
                    label,
                    annotation,
                },
            })
        }
        (label, annotation) => Ok(label.or(annotation)),
    }
}

fn name(
    key: &'static str,
    value: &str,
    what: &'static str,
    example: &'static str,
) -> Result<String, KeyError> {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_name = (1..=MAX_NAME).contains(&value.len())
        && value.bytes().all(is_inner)
        && !value.starts_with('-')
        && !value.ends_with('-');
    match is_name {
        true => Ok(value.to_owned()),
        false => Err(KeyError::Name {
            key,
            value: value.to_owned(),
            what,
            example,
        }),
    }
}

fn choice<T: FromStr<Err = String> + Default>(
    key: &'static str,
    value: Option<&String>,
) -> Result<T, KeyError> {
    let Some(value) = value else {
        return Ok(T::default());
    };
    value.parse().map_err(|known| KeyError::Value {
        key,
        value: value.clone(),
        known,
    })
}
