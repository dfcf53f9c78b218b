//! The identities of one namespace, as its Secret holds them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::Identity;
use crate::kubernetes::objects::AUTH;
use lockkeeper_crds::keys::ROTATE;

/// Name of the Secret, in every namespace that has locks.
pub const NAME: &str = "lockkeeper-zookeeper";

/// Its type, which the chart's policy on the operator checks besides the name.
pub const TYPE: &str = "Opaque";

/// The identities that may use a namespace's locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identities {
    /// The one in use, and the one before.
    pub(crate) all: Vec<Identity>,
    /// Whether a user asks for a new one.
    pub(crate) is_rotation_asked: bool,
    /// Whether the certificates are there that pods need.
    pub(crate) has_certificates: bool,
}

/// What pods need beside an identity: the keys of the Secret with their content.
pub(crate) type Certificates = BTreeMap<String, ByteString>;

/// A Secret that is not what it should be, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key} of Secret {NAME} {problem}; delete the Secret and it is made anew")]
pub(crate) struct UnusableSecret {
    key: &'static str,
    problem: String,
}

// === impl Identities ===

impl Identities {
    pub(super) fn first(namespace: &str) -> Self {
        Self {
            all: vec![Identity::generate(namespace)],
            is_rotation_asked: false,
            has_certificates: true,
        }
    }

    /// Reads a Secret, which should have these certificates.
    ///
    /// # Errors
    /// When the identities are missing or something else.
    pub(crate) fn of(secret: &Secret, certificates: &Certificates) -> Result<Self, UnusableSecret> {
        let namespace = secret.namespace().unwrap_or_default();
        let unusable = |problem: String| UnusableSecret { key: AUTH, problem };
        let data = secret.data.as_ref();
        let value = |key: &str| data.and_then(|data| data.get(key));
        let auth = value(AUTH).ok_or_else(|| unusable("is missing".into()))?;
        let text = std::str::from_utf8(&auth.0).map_err(|_| unusable("is not text".into()))?;
        let all = Identity::parse_lines(text).map_err(|error| unusable(error.to_string()))?;
        if !all.iter().all(|identity| identity.is_of(&namespace)) {
            return Err(unusable(format!("must hold identities of ns-{namespace}")));
        }
        Ok(Self {
            all,
            is_rotation_asked: secret.annotations().contains_key(ROTATE),
            has_certificates: certificates
                .iter()
                .all(|(key, content)| value(key) == Some(content)),
        })
    }

    /// After a rotation: a new one, and the one that was in use.
    pub(super) fn rotated(&self, namespace: &str) -> Self {
        let mut all = Self::first(namespace).all;
        all.push(self.all[0].clone());
        Self {
            all,
            ..Self::first(namespace)
        }
    }

    pub(super) fn data(&self, certificates: &Certificates) -> BTreeMap<String, ByteString> {
        let lines: Vec<_> = self.all.iter().map(Identity::to_line).collect();
        let auth = (AUTH.to_owned(), ByteString(lines.join("\n").into_bytes()));
        certificates.clone().into_iter().chain([auth]).collect()
    }
}
