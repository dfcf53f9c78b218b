//! What is used of a Secret, and the keys that it is read by.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Deserializer};

use super::metadata::part;
use super::secret_keys::{AUTH, CA, CERTIFICATE, KEY};
use super::words::few;

const DATA: [&str; 6] = [AUTH, CA, CERTIFICATE, KEY, ".dockerconfigjson", ".dockercfg"];

part! {
    /// A Secret with the keys that are used of any.
    SecretPart of Secret {
        data: SecretData,
    }
}

/// What is used of a Secret.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretData(BTreeMap<String, ByteString>);

impl SecretData {
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
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

impl<'de> Deserialize<'de> for SecretData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        few(deserializer, &DATA).map(|data| Self(data.unwrap_or_default()))
    }
}
