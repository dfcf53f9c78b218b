//! Asks contenders to step down, and answers the users who asked for that.

use std::time::Duration;

use kube::ResourceExt;
use lockkeeper_crds::keys::HANDOFF;

use super::{Applied, Outcome};
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::reconcile::build::{Handoff, Request};
use crate::controller::reconcile::resolve::Resolved;
use crate::controller::writer::{LeasedWay, Writer};
use crate::kubernetes::events::{Notice, Reason};
use crate::kubernetes::objects::LockPart;
use crate::metrics::Cause;

/// How many times in a row the operator tries to remove an annotation from an object that others change at the same
/// time.
const TRIES: u32 = 3;

/// The pause after these tries, before the operator tries again.
const AGAIN: Duration = Duration::from_secs(1);

/// Carries out the handoff of a plan. `way` leads to the ensemble of the lock.
///
/// # Errors
/// Those of the ensemble and of the API server; and when this replica does not lead.
pub(super) async fn carry_out<'a>(
    ctx: &Context,
    writer: Writer<'_>,
    way: impl Fn() -> Result<&'a LeasedWay, Error>,
    resolved: &Resolved,
    handoff: &Handoff,
    applied: &mut Applied,
) -> Result<(), Error> {
    if !matches!(handoff, Handoff::Asked(_) | Handoff::Refused(_)) {
        // The annotation is gone, whoever removed it.
        ctx.memories.edit(&resolved.key, |memory| memory.served.forget());
    }
    match handoff {
        Handoff::None => {}
        Handoff::Later(rest) => applied.come_again(*rest),
        Handoff::Rollout(request, trial) => {
            step_down(ctx, writer, way()?, resolved, request, "rollout", applied).await?;
            ctx.memories
                .edit(&resolved.key, |memory| memory.trials.request(trial.clone()));
        }
        Handoff::Asked(request) => {
            // The object that we know may still have an annotation that we have removed: one request is one handoff.
            if asked(ctx, resolved).await?.is_none() {
                return Ok(());
            }
            if !was_served(ctx, resolved) {
                step_down(ctx, writer, way()?, resolved, request, "user", applied).await?;
                let served = wanted(resolved).cloned();
                ctx.memories
                    .edit(&resolved.key, |memory| memory.served.done(served));
            }
            acknowledge(ctx, writer, resolved, applied).await?;
        }
        Handoff::Refused(refusal) => {
            let was_served = was_served(ctx, resolved);
            if acknowledge(ctx, writer, resolved, applied).await? && !was_served {
                applied
                    .notices
                    .push(Notice::new(Reason::HandoffRefused, refusal.as_str()));
            }
        }
    }
    Ok(())
}

async fn step_down(
    ctx: &Context,
    writer: Writer<'_>,
    way: &LeasedWay,
    resolved: &Resolved,
    request: &Request,
    cause: &'static str,
    applied: &mut Applied,
) -> Result<(), Error> {
    let is_new = writer.request_yield(way, &resolved.key, &request.request).await?;
    if is_new {
        ctx.metrics.handoffs.get_or_create(&Cause { cause }).inc();
        ctx.memories.edit(&resolved.key, |memory| memory.yielded.done());
        tracing::info!(lock = %resolved.key, contenders = ?request.request.contenders, cause, "Handoff requested");
        applied
            .notices
            .push(Notice::new(Reason::HandoffRequested, request.note.as_str()));
    }
    Ok(())
}

/// Returns the annotation that we know, if the lock has one.
fn wanted(resolved: &Resolved) -> Option<&String> {
    resolved.lock.annotations().get(HANDOFF)
}

/// Whether this request was carried out, and its annotation could not be removed.
fn was_served(ctx: &Context, resolved: &Resolved) -> bool {
    ctx.memories.of(&resolved.key).served.is(wanted(resolved))
}

/// Returns the lock as it is now, if it still has the annotation that we know.
async fn asked(ctx: &Context, resolved: &Resolved) -> Result<Option<LockPart>, Error> {
    let key = &resolved.key;
    let now = ctx.reader.lock(&key.namespace, &key.name).await;
    let now = now.map_err(Error::reading("a DistributedLock"))?;
    Ok(now
        .filter(|now| now.uid() == resolved.lock.uid() && now.annotations().get(HANDOFF) == wanted(resolved)))
}

/// Removes the annotation that we know, and returns whether it was removed. A newer request stays. If others change the
/// object all the time, the annotation stays, too, until the operator tries again.
async fn acknowledge(
    ctx: &Context,
    writer: Writer<'_>,
    resolved: &Resolved,
    applied: &mut Applied,
) -> Result<bool, Error> {
    for _ in 0..TRIES {
        let Some(version) = asked(ctx, resolved)
            .await?
            .and_then(|lock| lock.resource_version())
        else {
            return Ok(false);
        };
        if let Some(new) = writer.acknowledge(&resolved.key, &version).await? {
            ctx.memories.edit(&resolved.key, |memory| memory.served.forget());
            if resolved.lock.resource_version() != Some(version) {
                // The status of this plan is of an older object.
                applied.outcome = Outcome::Outdated;
            }
            applied.changed(Some(new));
            return Ok(true);
        }
    }
    applied.come_again(AGAIN);
    Ok(false)
}
