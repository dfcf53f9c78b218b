//! How the operator writes the Secret of a namespace: only on top of the one that it has seen.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lockkeeper_crds::keys::ROTATE;
use serde_json::json;

use super::Secrets;
use crate::identity::namespace_secret::{Identities, NAME, TYPE};
use crate::kubernetes::objects::SecretPart;

impl Secrets {
    /// Checks by a dry run that the API server would let the Secret be created: it refuses that in a namespace that
    /// is being deleted. A rotation changes a Secret that exists. False if there is a Secret that this replica has not seen
    /// yet, such as that of the replica that led before; it is known then.
    ///
    /// # Errors
    /// Those of the API server.
    pub(crate) async fn would_be_written(
        &self,
        client: &Client,
        namespace: &str,
        wanted: &Identities,
    ) -> Result<bool, kube::Error> {
        if self.of(namespace).is_some() {
            return Ok(true);
        }
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let asked = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match api.create(&asked, &self.secret(wanted)).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.read_again(client, namespace).await?;
                Ok(false)
            }
            answer => answer.map(|_| true),
        }
    }

    /// Writes what [`Secrets::wanted`] said. If another client has made a Secret in between, this replica reads that one and changes nothing.
    ///
    /// # Errors
    /// Those of the API server; a conflict if another client has changed the Secret in between, which this replica reads then.
    pub(crate) async fn write_secret(
        &self,
        client: &Client,
        namespace: &str,
        wanted: &Identities,
    ) -> Result<(), kube::Error> {
        let known = self.read().get(namespace).cloned();
        let written = match known {
            None => {
                let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
                api.create(&PostParams::default(), &self.secret(wanted)).await
            }
            Some(known) => {
                let asked = wanted.is_rotation_asked.then_some("");
                // A rotation that is based on an older Secret would leave out the identity in use.
                let patch = Patch::Merge(json!({
                    "metadata": {"resourceVersion": known.version, "annotations": {ROTATE: asked}},
                    "data": wanted.data(&self.certificates),
                }));
                let parts: Api<SecretPart> = Api::namespaced(client.clone(), namespace);
                let patched = parts.patch(NAME, &PatchParams::default(), &patch).await;
                patched.map(Secret::from)
            }
        };
        match written {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.read_again(client, namespace).await
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                self.read_again(client, namespace).await?;
                Err(kube::Error::Api(status))
            }
            written => written.map(|secret| self.put(&secret)),
        }
    }

    async fn read_again(&self, client: &Client, namespace: &str) -> Result<(), kube::Error> {
        let parts: Api<SecretPart> = Api::namespaced(client.clone(), namespace);
        self.put(&parts.get(NAME).await?.into());
        Ok(())
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
