//! One reconciliation: `resolve → validate → build → apply → report`, the middle pure.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use lockkeeper_crds::DistributedLock;
use tokio::time::Instant;

use crate::context::Context;
use crate::error::Error;
use crate::layout::LockKey;
use crate::metrics::Outcome;
use crate::reach::Reach;

pub mod apply;
pub mod build;
pub mod report;
pub mod resolve;
pub mod validate;

/// Until a failed reconciliation is tried again: up to twice this, so that many do not come at once.
const RETRY: Duration = Duration::from_secs(1);

/// Time between two looks at what changes without a word: a workload in the middle of a rollout, a
/// namespace that is being deleted.
const LOOK: Duration = Duration::from_secs(15);

/// Brings the cluster and the ensemble to what one `DistributedLock` asks for.
///
/// # Errors
/// What failed; it is tried again.
pub async fn reconcile(lock: Arc<DistributedLock>, ctx: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let done = steps(lock, &ctx).await;
    ctx.metrics.duration.observe(started.elapsed().as_secs_f64());
    let result = done.as_ref().map_or_else(Error::reason, |_| "ok");
    ctx.metrics
        .reconciliations
        .get_or_create(&Outcome { result })
        .inc();
    done
}

async fn steps(lock: Arc<DistributedLock>, ctx: &Context) -> Result<Action, Error> {
    let key = LockKey::new(lock.namespace().unwrap_or_default(), lock.name_any());
    let reach = ctx.reach.borrow().clone();
    let connection = match reach {
        Reach::Up(connection) if ctx.leadership.is_leading() => connection,
        // The leader does it; or it comes again when the ensemble is back.
        Reach::Up(_) | Reach::Unsure => return Ok(Action::await_change()),
        Reach::Lost { reason, time } => {
            // Once for each loss: a replica that alone is cut off does not argue with the leader.
            if ctx.memories.of(&key).lost == time {
                return Ok(Action::await_change());
            }
            let resolved = resolve::resolve(ctx, key.clone(), lock).await?;
            let again = report::report_loss(ctx, &resolved, &reason).await?;
            if again.is_none() {
                ctx.memories.edit(&key, |memory| memory.lost = time);
            }
            return Ok(again.map_or_else(Action::await_change, Action::requeue));
        }
    };
    if lock.metadata.deletion_timestamp.is_none() {
        apply::ensure_identity(ctx, &connection, &key.namespace).await?;
    }
    let resolved = resolve::resolve(ctx, key, lock).await?;
    let valid = validate::validate(
        &resolved.lock.spec,
        resolved.identities.as_ref(),
        &ctx.connect,
        ctx.tick_time,
    );
    let plan = build::build(&resolved);
    let applied = apply::apply(ctx, &connection, &resolved, &valid, &plan).await?;
    let again = report::report(ctx, &resolved, applied).await?;
    // Nobody says when a user resumes a rollout, or moves its partition.
    let held_back = resolved.rollout.is_some().then_some(LOOK);
    let again = again.into_iter().chain(held_back).min();
    Ok(Action::requeue(again.unwrap_or_else(recheck)))
}

/// When nothing happens: once in a while, and not all at once.
fn recheck() -> Duration {
    apply::RECHECK.mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// What happens after an error.
pub fn on_error(lock: Arc<DistributedLock>, error: &Error, _: Arc<Context>) -> Action {
    if let Error::NotLeading(_) = error {
        return Action::await_change();
    }
    if error.is_terminating() {
        // Its own deletion is the next that happens to it.
        return Action::requeue(LOOK);
    }
    if !error.is_conflict() {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(
            lock = %format!("{}/{}", lock.namespace().unwrap_or_default(), lock.name_any()),
            %error,
            cause,
            "Reconciliation failed; trying again"
        );
    }
    Action::requeue(RETRY.mul_f64(1.0 + fastrand::f64()))
}
