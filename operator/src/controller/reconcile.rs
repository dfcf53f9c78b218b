//! One reconciliation: `resolve → validate → build → apply → report`, the middle pure.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use lockkeeper_crds::DistributedLock;
use tokio::time::Instant;

use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::memory::RECHECK;
use crate::controller::writer::{LossWriter, Writer};
use crate::lock_key::LockKey;
use crate::zookeeper::foreign::{Source, Standing};
use crate::zookeeper::reachability::Reachability;

pub(crate) mod apply;
pub(crate) mod build;
mod claim;
mod fenced;
mod history;
mod readiness;
pub(crate) mod report;
pub(crate) mod resolve;
mod roots;
pub(crate) mod situation;
mod status_events;
pub(crate) mod validate;
pub(crate) mod which_ensemble;
mod workload;

use apply::{Applied, Outcome};
use build::Plan;
use resolve::Resolved;
use situation::Situation;

/// Brings the cluster and the ensemble to what one `DistributedLock` asks for.
///
/// # Errors
/// What failed; it is tried again.
pub(crate) async fn reconcile(lock: Arc<DistributedLock>, ctx: Arc<Context>) -> Result<Action, Error> {
    let key = LockKey::new(lock.namespace().unwrap_or_default(), lock.name_any());
    // The lock is announced when there is a turn.
    let Some(_turn) = ctx.turns.take(&key) else {
        return Ok(Action::await_change());
    };
    let started = Instant::now();
    let done = steps(key, lock, &ctx).await;
    ctx.metrics.duration.observe(started.elapsed().as_secs_f64());
    let result = done.as_ref().map_or_else(Error::reason, |_| "ok");
    ctx.metrics.reconciled(result);
    done
}

/// By what right a reconciliation writes.
enum Right<'a> {
    Leader(Writer<'a>),
    /// The operator's own ensemble is lost for the time with this number, so nobody leads: the status says that.
    Loss(LossWriter<'a>, u64),
}

async fn steps(key: LockKey, lock: Arc<DistributedLock>, ctx: &Context) -> Result<Action, Error> {
    let own = ctx.own.reachability.borrow().clone();
    let Some(right) = right(ctx, &key, &lock, &own) else {
        return Ok(Action::await_change());
    };
    let writer = match right {
        Right::Leader(writer) => writer,
        Right::Loss(writer, number) => return tell_of_loss(ctx, key, lock, own, (writer, number)).await,
    };
    let Some((mut resolved, mut plan)) = make_plan(ctx, &key, &lock, &own).await? else {
        return Ok(Action::await_change());
    };
    let mut applied = apply::apply(ctx, writer, &resolved, &plan).await?;
    // What this replica alone remembers has to be in a status soon. Planned once more at most: if a client changes
    // nodes faster than that, its status is one round late. An object that was changed comes again by itself, as it is then.
    if applied.outcome == Outcome::Outdated && applied.version.is_none() {
        report::tell(&writer, &resolved, &applied.notices).await;
        let Some(again) = make_plan(ctx, &key, &lock, &own).await? else {
            return Ok(Action::requeue(report::PAUSE));
        };
        (resolved, plan) = again;
        applied = apply::apply(ctx, writer, &resolved, &plan).await?;
    }
    let is_followed = matches!(resolved.situation, Situation::Followed { .. });
    let is_gone = applied.outcome == Outcome::Gone;
    let again = report::report(ctx, writer, &resolved, &plan.status, applied).await?;
    let again = again.into_iter().chain(resolved.again).min();
    Ok(match again {
        _ if is_gone && !is_followed => Action::await_change(),
        Some(again) => Action::requeue(again),
        None if is_followed => Action::requeue(recheck()),
        None => Action::await_change(),
    })
}

/// What is to be done for the lock as it is now; `None` as [`resolve`].
async fn make_plan(
    ctx: &Context,
    key: &LockKey,
    lock: &Arc<DistributedLock>,
    own: &Reachability,
) -> Result<Option<(Resolved, Plan)>, Error> {
    let resolved = resolve::resolve(ctx, key.clone(), Arc::clone(lock), own.clone()).await?;
    Ok(resolved.map(|resolved| {
        let valid = validate::validate(&resolved);
        let plan = build::build(&resolved, &valid, Timestamp::now());
        (resolved, plan)
    }))
}

/// Writes into the status that the operator's own ensemble is lost.
async fn tell_of_loss(
    ctx: &Context,
    key: LockKey,
    lock: Arc<DistributedLock>,
    own: Reachability,
    (writer, number): (LossWriter<'_>, u64),
) -> Result<Action, Error> {
    let Some((resolved, plan)) = make_plan(ctx, &key, &lock, &own).await? else {
        return Ok(Action::await_change());
    };
    let again = report::report(ctx, writer, &resolved, &plan.status, Applied::default()).await?;
    if again.is_none() {
        ctx.memories
            .edit(&key, |memory| memory.telling.spoke_of_loss(number));
    }
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// By what right this replica may write about a lock, if it may.
fn right<'a>(
    ctx: &'a Context,
    key: &LockKey,
    lock: &DistributedLock,
    own: &Reachability,
) -> Option<Right<'a>> {
    let is_in_own = matches!(Source::of(lock, &ctx.own.connect), Ok(None));
    let loss = ctx.writers.loss_writer(own).filter(|_| is_in_own);
    // Once for each loss: a replica that alone is cut off does not keep overwriting the leader's status.
    if loss.is_some_and(|(_, number)| ctx.memories.of(key).telling.speaks_of_loss(number)) {
        return None;
    }
    note(ctx, key, lock);
    if let Some((writer, number)) = loss {
        return Some(Right::Loss(writer, number));
    }
    match (ctx.writers.writer(), own) {
        (Ok(writer), Reachability::Up(_)) => {
            ctx.memories
                .edit(key, |memory| memory.moving.enter(writer.term()));
            Some(Right::Leader(writer))
        }
        // The leader does it; or the lock is reconciled again when the ensemble is back.
        (_, Reachability::Up(_) | Reachability::Unsure | Reachability::Lost { .. }) => None,
    }
}

/// Takes in on which machines the contenders of a lock are. Every replica does: the one that leads next may need it.
fn note(ctx: &Context, key: &LockKey, lock: &DistributedLock) {
    let Some((fencing, _)) = &ctx.fencing else {
        return;
    };
    let queue = match Source::of(lock, &ctx.own.connect) {
        Ok(None) => ctx.own.view.queue(key),
        Ok(Some(source)) => match ctx.other_ensembles.standing(&source) {
            Standing::Up { ensemble, .. } => ensemble.view.queue(key),
            Standing::Unsure | Standing::Out(_) | Standing::Orphaned(_) => return,
        },
        Err(_) => return,
    };
    fencing.note(key, &queue, &ctx.pods.of(key));
}

/// When to look again although nothing happens: spread, so that not all locks come at once.
fn recheck() -> Duration {
    RECHECK.mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// When to reconcile again after an error.
pub(crate) fn on_error(lock: Arc<DistributedLock>, error: &Error, _: Arc<Context>) -> Action {
    if error.is_failure() {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(
            lock = %format!("{}/{}", lock.namespace().unwrap_or_default(), lock.name_any()),
            %error,
            cause,
            "Reconciliation failed; trying again"
        );
    }
    error.rest().map_or_else(Action::await_change, Action::requeue)
}
