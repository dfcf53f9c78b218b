//! Pods that name a lock which nobody described: it gets a `DistributedLock` with the defaults.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use kube::runtime::reflector::{ObjectRef, Store};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};

use crate::context::Context;
use crate::layout::LockKey;

/// Time between two looks at all locks that pods name: for those whose object was deleted while pods
/// still name it. Pods that are new are looked at when they come.
const LOOK: Duration = Duration::from_secs(30);

/// Looks after all locks that pods name; to be run as a task. Ends when it is dropped.
pub async fn follow(ctx: Arc<Context>, store: Store<DistributedLock>) {
    if store.wait_until_ready().await.is_err() {
        return;
    }
    loop {
        for key in ctx.pods.locks() {
            adopt(&ctx, &store, &key).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Makes the object of a lock that pods name, if there is none.
pub async fn adopt(ctx: &Context, store: &Store<DistributedLock>, key: &LockKey) {
    if ctx.leadership.check().is_err() || store.get(&object(key)).is_some() {
        return;
    }
    ctx.metrics.wrote("lock");
    let api: Api<DistributedLock> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let lock = DistributedLock::new(&key.name, DistributedLockSpec::default());
    match api.create(&PostParams::default(), &lock).await {
        Ok(_) => tracing::info!(lock = %key, "Made a DistributedLock with the defaults for pods that name it"),
        // Not seen yet.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => tracing::warn!(lock = %key, %error, "Failed to make a DistributedLock"),
    }
}

/// The object of a lock, for the store.
pub fn object(key: &LockKey) -> ObjectRef<DistributedLock> {
    ObjectRef::new(&key.name).within(&key.namespace)
}
