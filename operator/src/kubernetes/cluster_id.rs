//! Which Kubernetes cluster this is.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

/// Time between two questions.
const AGAIN: Duration = Duration::from_secs(1);

/// What tells a cluster from others, once it is known: the UID of its namespace kube-system, which every cluster has.
pub(crate) type Uid = watch::Receiver<Option<Arc<str>>>;

/// Asks for the UID until it is answered; to be run as a task. Does not end.
pub(crate) async fn find(client: Client, uid: watch::Sender<Option<Arc<str>>>) {
    let namespaces: Api<Namespace> = Api::all(client);
    loop {
        match namespaces.get("kube-system").await {
            Ok(namespace) => break drop(uid.send_replace(Some(namespace.uid().unwrap_or_default().into()))),
            Err(error) => tracing::warn!(
                %error,
                "Failed to read the namespace kube-system, whose UID tells this cluster from others; trying again"
            ),
        }
        tokio::time::sleep(AGAIN).await;
    }
    pending().await
}
