//! Writes into the status of a lock that it is in this ensemble, before anything of it is made there.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use lockkeeper_crds::lock::Reason;
use tokio::time::Instant;

use super::resolve::Resolved;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::status::claimed;
use crate::controller::writer::{StatusWriter, Writer};
use crate::kubernetes::events::{self, Notice};
use crate::problem::Problem;

/// Writes the claim of a lock, if there is one; false when the lock is gone.
///
/// # Errors
/// Those of the API server; when this replica does not lead; and when the resource does not keep the ID.
pub(super) async fn write(ctx: &Context, writer: Writer<'_>, resolved: &mut Resolved) -> Result<bool, Error> {
    let Some(claim) = &resolved.claim else {
        return Ok(true);
    };
    let key = &resolved.key;
    if let Some(from) = &claim.from {
        tracing::warn!(lock = %key, from, to = claim.id, "A lock moves to another ensemble");
    }
    let status = resolved.lock.status.clone().unwrap_or_default();
    let version = resolved.lock.resource_version();
    let Some(lock) = writer.write_status(key, version, &status).await? else {
        return Ok(false);
    };
    let is_kept = lock
        .status
        .as_ref()
        .is_some_and(|status| status.ensemble.is_some());
    if is_kept {
        if claim.from.is_some() {
            ctx.memories.edit(key, |memory| {
                memory.abandoned = None;
                memory.provisioned = None;
                // Webhooks hear of the move from now on.
                memory.moved = Some(Instant::now());
            });
        }
        resolved.lock = Arc::new(lock);
        return Ok(true);
    }
    if !claim.is_known_to_fail {
        // Users look at conditions, and every release keeps them.
        let problem = Problem::new(Reason::ResourceOutdated, Error::OldResource.to_string());
        let notice = Notice::new(events::Reason::ProvisioningFailed, problem.message.as_str());
        let previous = lock.status.clone().unwrap_or_default();
        let now = Timestamp::now();
        let status = claimed(
            &previous,
            &claim.id,
            lock.metadata.generation,
            Some(&problem),
            now,
        );
        let version = lock.resource_version();
        writer.write_status(key, version, &status).await?;
        writer.tell(&[notice], &lock.object_ref(&())).await;
    }
    Err(Error::OldResource)
}
