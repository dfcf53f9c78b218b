//! Part of the fourth step: the status of a lock says that it is in this ensemble, before anything of it is made there.

use kube::{Resource, ResourceExt};
use lockkeeper_crds::DistributedLock;

use super::build::Claiming;
use super::resolve::Resolved;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::writer::{StatusWriter, Writer};
use crate::kubernetes::events::{Notice, Reason};

/// Writes the claim of a lock, and returns the lock; `None` when it is gone.
///
/// # Errors
/// Those of the API server; when this replica does not lead; and when the resource does not keep the ID.
pub(super) async fn write(
    ctx: &Context,
    writer: Writer<'_>,
    resolved: &Resolved,
    claim: &Claiming,
) -> Result<Option<DistributedLock>, Error> {
    let key = &resolved.key;
    if let Some(from) = &claim.from {
        tracing::warn!(lock = %key, from, to = claim.id, "A lock moves to another ensemble");
    }
    let version = resolved.lock.resource_version();
    let Some(lock) = writer.write_status(key, version, &claim.status).await? else {
        return Ok(None);
    };
    let kept = lock.status.as_ref();
    if kept.is_some_and(|status| status.ensemble.is_some()) {
        if claim.from.is_some() {
            ctx.memories.edit(key, |memory| {
                memory.nodes.forget();
                // Webhooks hear of the move from now on.
                memory.moving.arrive();
            });
        }
        return Ok(Some(lock));
    }
    if let Some(status) = &claim.if_not_kept {
        writer.write_status(key, lock.resource_version(), status).await?;
        let notice = Notice::new(Reason::ProvisioningFailed, Error::OldResource.to_string());
        writer.tell(&[notice], &lock.object_ref(&())).await;
    }
    Err(Error::OldResource)
}
