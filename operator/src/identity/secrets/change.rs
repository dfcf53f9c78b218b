//! What has to be written into the Secret of a namespace: only on top of the one that this process has seen. Pure.

use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use lockkeeper_crds::keys::ROTATE;
use serde_json::{Value, json};

use super::Secrets;
use crate::identity::namespace_secret::{Identities, NAME, TYPE};

/// A change of the Secret of a namespace.
#[derive(Debug)]
pub(crate) enum Change {
    /// It is created: this process has seen none.
    Create(Box<Secret>),
    /// It is patched, if it still has the version that this process has seen.
    Patch(Value),
}

impl Secrets {
    /// The change after which the Secret holds what [`Secrets::wanted`] said.
    pub(crate) fn change(&self, namespace: &str, wanted: &Identities) -> Change {
        let Some(known) = self.read().get(namespace).cloned() else {
            return Change::Create(Box::new(self.secret(wanted)));
        };
        let asked = wanted.is_rotation_asked.then_some("");
        // A rotation that is based on an older Secret would leave out the identity in use.
        Change::Patch(json!({
            "metadata": {"resourceVersion": known.version, "annotations": {ROTATE: asked}},
            "data": wanted.data(&self.certificates),
        }))
    }

    pub(super) fn secret(&self, identities: &Identities) -> Secret {
        Secret {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                labels: Some([("app.kubernetes.io/managed-by".to_owned(), "lockkeeper".to_owned())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            data: Some(identities.data(&self.certificates)),
            ..Secret::default()
        }
    }
}
