//! Writes the Secret of a namespace: only on top of the one that this replica has seen.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};

use super::Writer;
use crate::controller::error::Error;
use crate::identity::namespace_secret::{Identities, NAME};
use crate::identity::secrets::{Change, Secrets};
use crate::kubernetes::objects::SecretPart;

impl Writer<'_> {
    /// Asks the API server by a dry run whether it would let the Secret of a namespace be created: it refuses that in a
    /// namespace that is being deleted. A rotation changes a Secret that exists. False if there is a Secret that this
    /// replica has not seen yet, such as that of the replica that led before; this replica knows it then.
    ///
    /// # Errors
    /// Those of the API server; [`NotLeading`](crate::leadership::NotLeading).
    pub(crate) async fn try_secret(
        &self,
        secrets: &Secrets,
        namespace: &str,
        wanted: &Identities,
    ) -> Result<bool, Error> {
        let client = self.client()?;
        let Change::Create(secret) = secrets.change(namespace, wanted) else {
            return Ok(true);
        };
        let asked = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let failed = Error::writing("the namespace's Secret");
        match api.create(&asked, &secret).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                read_again(&client, secrets, namespace).await.map_err(failed)?;
                Ok(false)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes what [`Secrets::wanted`] said. If another client has made a Secret in between, this replica reads that one
    /// and changes nothing.
    ///
    /// # Errors
    /// Those of the API server; a conflict if another client has changed the Secret in between, which this replica reads
    /// then; [`NotLeading`](crate::leadership::NotLeading).
    pub(crate) async fn write_secret(
        &self,
        secrets: &Secrets,
        namespace: &str,
        wanted: &Identities,
    ) -> Result<(), Error> {
        let client = self.counted("secret")?;
        let written = match secrets.change(namespace, wanted) {
            Change::Create(secret) => {
                let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
                api.create(&PostParams::default(), &secret).await
            }
            Change::Patch(patch) => {
                let parts: Api<SecretPart> = Api::namespaced(client.clone(), namespace);
                let patch = Patch::Merge(patch);
                let patched = parts.patch(NAME, &PatchParams::default(), &patch).await;
                patched.map(Secret::from)
            }
        };
        let done = match written {
            Ok(secret) => {
                secrets.put(&secret);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                read_again(&client, secrets, namespace).await
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let read = read_again(&client, secrets, namespace).await;
                read.and(Err(kube::Error::Api(status)))
            }
            Err(error) => Err(error),
        };
        done.map_err(Error::writing("the namespace's Secret"))
    }
}

async fn read_again(client: &Client, secrets: &Secrets, namespace: &str) -> Result<(), kube::Error> {
    let parts: Api<SecretPart> = Api::namespaced(client.clone(), namespace);
    secrets.put(&parts.get(NAME).await?.into());
    Ok(())
}
