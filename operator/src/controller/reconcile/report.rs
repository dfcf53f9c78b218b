//! Fifth step: the status of the plan, where it differs from the one that the lock has, and events for people.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use lockkeeper_crds::lock::{DistributedLockStatus, PastHolder};

use super::apply::{Applied, Outcome};
use super::history::{changes, history};
use super::resolve::Resolved;
use super::situation::Situation;
use super::status_events::{gone, news};
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::status::is_between_holders;
use crate::controller::writer::StatusWriter;
use crate::kubernetes::events::Notice;
use crate::zookeeper::nodes::{Ending, TreeError};

/// Least time between two writes of one status.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// How long a lock may be between two holders before its status says so: a few round trips to the
/// ensemble. Below, a handoff is one write, with the new holder.
const BETWEEN: Duration = Duration::from_millis(200);

/// Writes the status if it changed, publishes events, and returns after which time there is more to do.
///
/// # Errors
/// Those of the API server; and when this replica does not lead, unless the writer takes no lease.
pub(crate) async fn report(
    ctx: &Context,
    writer: impl StatusWriter,
    resolved: &Resolved,
    status: &DistributedLockStatus,
    applied: Applied,
) -> Result<Option<Duration>, Error> {
    let Applied {
        outcome,
        mut notices,
        mut again,
        version,
    } = applied;
    match outcome {
        Outcome::Done => {}
        // An object that was changed comes again by itself, as it is then.
        Outcome::Outdated if version.is_some() => {
            tell(&writer, resolved, &notices).await;
            return Ok(again);
        }
        Outcome::Outdated => again = again.into_iter().chain([PAUSE]).min(),
        Outcome::Gone => {
            // Also of those that were removed just now.
            notices.extend(ctx.memories.of(&resolved.key).removals.notice());
            tell(&writer, resolved, &notices).await;
            ctx.memories.forget(&resolved.key);
            ctx.metrics.forget(&resolved.key);
            return Ok(None);
        }
    }
    let rest = still_between(ctx, resolved);
    if !rest.is_zero() {
        tell(&writer, resolved, &notices).await;
        return Ok(Some(rest));
    }
    let previous = resolved.lock.status.clone().unwrap_or_default();
    let version = version.or_else(|| resolved.lock.resource_version());
    let written = write(ctx, &writer, resolved, &previous, status, version).await?;
    let removals = &resolved.memory.removals;
    if !matches!(written, Written::After(_)) {
        notices.extend(removals.notice());
        ctx.memories
            .edit(&resolved.key, |memory| memory.removals.told(status));
    }
    if let Written::Now { lost } = &written {
        count(ctx, resolved, lost);
        notices.extend(news(&previous, status, lost, removals));
    }
    tell(&writer, resolved, &notices).await;
    Ok(match written {
        Written::After(rest) => Some(again.map_or(rest, |again| again.min(rest))),
        Written::Now { .. } | Written::Unchanged => again,
    })
}

/// How long the status waits for a holder that is about to say that it holds.
fn still_between(ctx: &Context, resolved: &Resolved) -> Duration {
    if !matches!(resolved.situation, Situation::Followed { .. }) {
        return Duration::ZERO;
    }
    let is_between = is_between_holders(&resolved.participants);
    ctx.memories.edit(&resolved.key, |memory| {
        memory.telling.between(is_between, BETWEEN)
    })
}

#[derive(Debug)]
enum Written {
    Now {
        /// The holders that it shows no more, and that ended without a clean release.
        lost: Vec<String>,
    },
    Unchanged,
    /// Not before this time is over.
    After(Duration),
}

async fn write(
    ctx: &Context,
    writer: &impl StatusWriter,
    resolved: &Resolved,
    previous: &DistributedLockStatus,
    status: &DistributedLockStatus,
    version: Option<String>,
) -> Result<Written, Error> {
    if status == previous {
        return Ok(Written::Unchanged);
    }
    let rest = ctx.memories.of(&resolved.key).telling.rest(PAUSE);
    if !rest.is_zero() {
        return Ok(Written::After(rest));
    }
    // Asked before the status is written: afterwards no status shows the holder any more, and nobody would ask again.
    let endings = endings(resolved, previous, status).await?;
    let history = if changes(previous, status) {
        let kept = kept_history(ctx, resolved).await?;
        let removals = &resolved.memory.removals;
        history(kept, previous, status, &endings, removals, Timestamp::now())
    } else {
        Vec::new()
    };
    let status = DistributedLockStatus {
        history,
        ..status.clone()
    };
    let written = writer.write_status(&resolved.key, version, &status).await?;
    if written.is_none() {
        return Ok(Written::Unchanged);
    }
    ctx.memories
        .edit(&resolved.key, |memory| memory.telling.written());
    let lost = endings.into_iter().filter(|(_, ending)| *ending == Ending::Lost);
    Ok(Written::Now {
        lost: lost.map(|(contender, _)| contender).collect(),
    })
}

/// The history that the lock has now. If the lock has another version by now, the API server refuses the status.
async fn kept_history(ctx: &Context, resolved: &Resolved) -> Result<Vec<PastHolder>, Error> {
    let key = &resolved.key;
    let lock = ctx.reader.lock(&key.namespace, &key.name).await;
    let lock = lock.map_err(Error::reading("the DistributedLock"))?;
    let status = lock.and_then(|lock| lock.status);
    Ok(status.map(|status| status.history).unwrap_or_default())
}

/// How the contenders ended that hold in the previous status and in this one no more.
///
/// # Errors
/// When the ensemble could not be asked now: then the status is not written either, and the reconciliation is tried again.
async fn endings(
    resolved: &Resolved,
    previous: &DistributedLockStatus,
    status: &DistributedLockStatus,
) -> Result<Vec<(String, Ending)>, TreeError> {
    let gone = gone(previous, status);
    let Some(way) = resolved.situation.way().filter(|_| !gone.is_empty()) else {
        return Ok(Vec::new());
    };
    match way.endings(&resolved.key, &gone).await {
        Ok(endings) => {
            let names = gone.into_iter().map(|one| one.contender);
            Ok(names.zip(endings).collect())
        }
        // A later attempt would fail as well.
        Err(error @ (TreeError::Foreign { .. } | TreeError::TooLong { .. })) => {
            tracing::warn!(lock = %resolved.key, %error, "Failed to find out how a holder ended");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Counts holders that ended without a clean release, because a keeper that ends with the loss cannot. Each is counted only
/// once, since every replica writes a status only on top of the one that it has seen.
fn count(ctx: &Context, resolved: &Resolved, lost: &[String]) {
    if !lost.is_empty() {
        tracing::warn!(lock = %resolved.key, contenders = ?lost, "A holder ended without a clean release");
        ctx.metrics.lost(&resolved.key, lost.len() as u64);
    }
}

/// Publishes these events about the lock.
pub(super) async fn tell(writer: &impl StatusWriter, resolved: &Resolved, notices: &[Notice]) {
    writer.tell(notices, &resolved.lock.object_ref(&())).await;
}
