//! One reconciliation: `resolve → validate → build → apply → report`, the middle pure.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::Reason as ConditionReason;
use tokio::time::Instant;

use crate::context::Context;
use crate::error::{Error, Problem};
use crate::events::{Notice, Reason};
use crate::layout::LockKey;
use crate::metrics::Outcome;
use crate::others::{Source, Standing};
use crate::picture::{Excess, Queue};
use crate::reach::Reach;
use crate::rotation::{self, Ensured, Obstacle};
use crate::tree::TreeError;
use crate::way::Way;

pub mod apply;
pub mod build;
pub mod membership;
pub mod report;
pub mod resolve;
pub mod validate;

use membership::Membership;
use resolve::Resolved;
use validate::Ticks;

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
    let key = LockKey::new(lock.namespace().unwrap_or_default(), lock.name_any());
    // It is announced when there is one.
    let Some(_turn) = ctx.turns.take(&key) else {
        return Ok(Action::await_change());
    };
    let started = Instant::now();
    let done = steps(key, lock, &ctx).await;
    ctx.metrics.duration.observe(started.elapsed().as_secs_f64());
    let result = done.as_ref().map_or_else(Error::reason, |_| "ok");
    ctx.metrics
        .reconciliations
        .get_or_create(&Outcome { result })
        .inc();
    done
}

async fn steps(key: LockKey, lock: Arc<DistributedLock>, ctx: &Context) -> Result<Action, Error> {
    let source = Source::of(&lock, &ctx.own.connect);
    let reach = ctx.own.reach.borrow().clone();
    let own = match reach {
        Reach::Up(way) if ctx.leadership.is_leading() => way,
        Reach::Lost { problem, time } if matches!(source, Ok(None)) => {
            // Once for each loss: a replica that alone is cut off does not argue with the leader.
            if ctx.memories.of(&key).lost == time {
                return Ok(Action::await_change());
            }
            let resolved = resolve::resolve(ctx, ctx.own.view.queue(&key), key.clone(), lock).await?;
            let again = report::report_loss(ctx, &resolved, &problem, false).await?;
            if again.is_none() {
                ctx.memories.edit(&key, |memory| memory.lost = time);
            }
            return Ok(again.map_or_else(Action::await_change, Action::requeue));
        }
        // The leader does it; or it comes again when the ensemble is back.
        Reach::Up(_) | Reach::Unsure | Reach::Lost { .. } => return Ok(Action::await_change()),
    };
    let mut put_off = None;
    if lock.metadata.deletion_timestamp.is_none() {
        let uid = lock.uid();
        let is_same = uid.is_some() && ctx.memories.of(&key).identified == uid;
        put_off = match rotation::ensure_identity(ctx, &own, &key.namespace, is_same).await? {
            Ensured::Done(put_off) => put_off,
            Ensured::Busy => return Ok(Action::requeue(RETRY.mul_f64(1.0 + fastrand::f64()))),
        };
        ctx.memories.edit(&key, |memory| memory.identified = uid);
    }
    let standing = match source {
        Ok(None) => Standing::Up {
            ensemble: Arc::clone(&ctx.own),
            way: own,
            problem: None,
        },
        Ok(Some(source)) => ctx.others.standing(&source),
        Err(problem) => Standing::Out(problem),
    };
    let (ensemble, way, problem) = match standing {
        Standing::Up {
            ensemble,
            way,
            problem,
        } => (ensemble, way, problem),
        // It comes again when that is known.
        Standing::Unsure => return Ok(Action::await_change()),
        out => return without(ctx, key, lock, out).await,
    };
    // Known since before the connection was said to be up.
    let Some(id) = ensemble.view.id() else {
        return Ok(Action::await_change());
    };
    let (lock, disputed, settled) =
        match membership::membership(ctx, &key, lock.clone(), &ensemble, &id.to_string()).await? {
            Membership::Member(lock, problem, again) => (lock, problem, again),
            Membership::Stranger(problem, again) => {
                let resolved = resolve::resolve(ctx, Queue::default(), key, lock).await?;
                let sooner = report::report_loss(ctx, &resolved, &problem, true).await?;
                return Ok(Action::requeue(sooner.map_or(again, |sooner| sooner.min(again))));
            }
            Membership::Abandoned => {
                let resolved = resolve::resolve(ctx, Queue::default(), key, lock).await?;
                apply::let_go(ctx, &resolved).await?;
                return Ok(Action::await_change());
            }
        };
    let problem = problem.or(disputed);
    let queue = ensemble.view.queue(&key);
    if let Some(excess) = queue.excess() {
        return crowded(ctx, &way, key, lock, excess).await;
    }
    let resolved = resolve::resolve(ctx, queue, key, lock).await?;
    let ticks = Ticks {
        stated: ctx.tick_time,
        told: ensemble.view.tick_time(),
    };
    let identities = ensemble.is_own.then_some(resolved.identities.as_ref());
    let valid = match problem {
        Some(problem) => Err(problem),
        None => validate::validate(&resolved.lock.spec, identities, ticks),
    };
    let plan = build::build(&resolved);
    let mut applied = apply::apply(ctx, &way, &resolved, &valid, &plan).await?;
    let is_put_off = put_off.is_some();
    applied.notices.extend(rotation_news(ctx, &resolved.key, put_off));
    let again = report::report(ctx, &way, &resolved, applied).await?;
    // Nobody says when a user resumes a rollout, or moves its partition; or when a keeper has opened its
    // contender to another identity.
    let held_back = (is_put_off || resolved.is_late || resolved.rollout.is_some()).then_some(LOOK);
    let again = again.into_iter().chain(held_back).chain(settled).min();
    Ok(Action::requeue(again.unwrap_or_else(recheck)))
}

/// A lock with more below its root than is followed. Who stands in its queue is not known; whoever removes its nodes finds
/// out, so it is tried when no pod of it runs.
async fn crowded(
    ctx: &Context,
    way: &Way,
    key: LockKey,
    lock: Arc<DistributedLock>,
    excess: &Excess,
) -> Result<Action, Error> {
    let problem = Problem::new(ConditionReason::TooManyContenders, excess.to_string());
    let resolved = resolve::resolve(ctx, Queue::default(), key, lock).await?;
    let is_deleted = resolved.lock.metadata.deletion_timestamp.is_some();
    let mut again = LOOK;
    if is_deleted && *ctx.pods.ready().borrow() && !has_pods(&resolved) {
        let plan = build::build(&resolved);
        let applied = apply::apply(ctx, way, &resolved, &Err(problem.clone()), &plan).await?;
        if applied.is_gone {
            report::report(ctx, way, &resolved, applied).await?;
            return Ok(Action::await_change());
        }
        again = applied.again.unwrap_or(LOOK);
    }
    let sooner = report::report_loss(ctx, &resolved, &problem, true).await?;
    Ok(Action::requeue(sooner.unwrap_or(again).min(again)))
}

/// Whether a pod of a lock may run.
fn has_pods(resolved: &Resolved) -> bool {
    resolved.pods.values().any(|facts| !facts.is_over)
}

/// A lock of an ensemble that there is no way to: the operator's own, or one that it names.
async fn without(
    ctx: &Context,
    key: LockKey,
    lock: Arc<DistributedLock>,
    standing: Standing,
) -> Result<Action, Error> {
    let resolved = resolve::resolve(ctx, Queue::default(), key, lock).await?;
    let is_deleted = resolved.lock.metadata.deletion_timestamp.is_some();
    // Without its object another one would be made for the next pod, in the operator's ensemble, beside those that run.
    let has_pods = has_pods(&resolved);
    let problem = match standing {
        Standing::Orphaned(_) if is_deleted && !has_pods => {
            apply::let_go(ctx, &resolved).await?;
            return Ok(Action::await_change());
        }
        Standing::Out(problem) | Standing::Orphaned(problem) => problem,
        Standing::Unsure | Standing::Up { .. } => return Ok(Action::await_change()),
    };
    let again = report::report_loss(ctx, &resolved, &problem, true).await?;
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// Tells people once why a rotation waits, at the locks that it waits for.
fn rotation_news(ctx: &Context, key: &LockKey, put_off: Option<Obstacle>) -> Option<Notice> {
    let mut is_news = false;
    ctx.memories.edit(key, |memory| {
        is_news = memory.put_off != put_off;
        memory.put_off.clone_from(&put_off);
    });
    put_off
        .filter(|why| is_news && why.locks.contains(key))
        .map(|why| Notice::new(Reason::RotationWaits, why.sentence))
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
    // Enough is asked of an ensemble of somebody's already.
    let is_busy = matches!(error, Error::Tree(TreeError::Busy));
    if !error.is_conflict() && !is_busy {
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
