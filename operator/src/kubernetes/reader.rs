//! Reads from the API server, and cannot write.

use kube::api::ListParams;
use kube::core::{NamespaceResourceScope, Resource};
use kube::{Api, Client};
use serde::de::DeserializeOwned;

use super::objects::{self, Finalizers, LockPart};

/// A client that only reads. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reader(Client);

impl Reader {
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// An object; `None` if it does not exist.
    ///
    /// # Errors
    /// Those of the API server.
    pub(crate) async fn get<P>(&self, namespace: &str, name: &str) -> Result<Option<P>, kube::Error>
    where
        P: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        P: Clone + DeserializeOwned + std::fmt::Debug,
    {
        Api::namespaced(self.0.clone(), namespace).get_opt(name).await
    }

    /// Reads a list page by page, see [`objects::list`].
    ///
    /// # Errors
    /// Those of the API server.
    pub(crate) async fn list<P>(
        &self,
        namespace: &str,
        chosen: ListParams,
        take: impl FnMut(P),
    ) -> Result<bool, kube::Error>
    where
        P: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        P: Clone + DeserializeOwned + std::fmt::Debug,
    {
        objects::list(&Api::namespaced(self.0.clone(), namespace), chosen, take).await
    }

    /// A lock as it is at this moment; `None` when it is gone. It is listed by its name: the right to list locks is there.
    ///
    /// # Errors
    /// Those of the API server.
    pub(crate) async fn lock(&self, namespace: &str, name: &str) -> Result<Option<LockPart>, kube::Error> {
        let one = ListParams::default().fields(&format!("metadata.name={name}"));
        let mut found = None;
        self.list(namespace, one, |lock| found = Some(lock)).await?;
        Ok(found)
    }

    /// The finalizers of a lock, see [`Finalizers::of`].
    ///
    /// # Errors
    /// Those of the API server.
    pub(crate) async fn finalizers(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Finalizers>, kube::Error> {
        Finalizers::of(&self.0, namespace, name).await
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}
