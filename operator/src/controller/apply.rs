//! Fourth step: what is to be done, done. Each write looks at the lease of this replica first.

use std::time::Duration;

use futures_util::{TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Patch;
use lockkeeper_crds::lock::{ConditionType, Trial};
use lockkeeper_crds::{DistributedLock, keys};
use lockkeeper_lock::Agreement;
use serde_json::json;
use tokio::time::Instant;

use super::build::{Finalizer, HANDOFF, Handoff, Nodes, Plan, Request, RoleChange};
use super::resolve::{Resolved, mode};
use super::validate::Valid;
use crate::context::{Context, Provisioned};
use crate::error::{Error, Problem};
use crate::events::{Notice, Reason};
use crate::layout::LockKey;
use crate::metrics::Cause;
use crate::parts::{self, Finalizers};
use crate::picture::Queue;
use crate::tree::{Agreed, Removal, TreeError};
use crate::way::Way;

/// How long nodes that were found in order are believed to be: rights that are changed by hand make
/// no event.
pub const RECHECK: Duration = Duration::from_secs(600);

/// Least time between two yield requests for one lock: longer than a pod needs to stop and the next
/// one to begin, so that no lock goes through a workload in one rush.
const YIELD_PAUSE: Duration = Duration::from_secs(10);

/// Role labels of one lock that are written at once.
const ROLES: usize = 8;

/// Until more of what is below the root of a lock that goes is removed.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// For so long after the start of an operator the finalizers of objects wait whose nodes are there already.
const FINALIZER_DELAY: Duration = Duration::from_secs(60);

/// What was done.
#[derive(Debug, Default)]
pub struct Applied {
    /// Why the lock is not ready, if it is not.
    pub not_ready: Option<Problem>,
    /// What people should hear of.
    pub notices: Vec<Notice>,
    /// The object is gone.
    pub is_gone: bool,
    /// The rest waits until then.
    pub again: Option<Duration>,
    /// The handoff of a rollout that was requested just now.
    pub trial: Option<Trial>,
    /// The object's version, if it was changed.
    pub version: Option<String>,
}

/// Does what is to be done.
///
/// # Errors
/// Those of the ensemble and of the API server; and when this replica does not lead.
pub async fn apply(
    ctx: &Context,
    way: &Way,
    resolved: &Resolved,
    valid: &Result<Valid, Problem>,
    plan: &Plan,
) -> Result<Applied, Error> {
    let Plan {
        finalizer,
        nodes,
        roles,
        handoff,
    } = plan;
    let mut applied = Applied::default();
    if *finalizer == Finalizer::Add {
        match finalizer_rest(resolved.queue.exists, ctx.started.elapsed()) {
            Duration::ZERO => applied.version = set_finalizer(ctx, resolved, true).await?,
            rest => applied.again = Some(rest),
        }
    }
    match nodes {
        Nodes::Leave => {}
        Nodes::Ensure => ensure(ctx, way, resolved, valid, &mut applied).await?,
        Nodes::Remove => {
            ctx.leadership.check()?;
            match way.remove_lock(&resolved.key).await? {
                Removal::Done => {}
                Removal::Goes => {
                    applied.again = Some(SWEEP_PAUSE);
                    return Ok(applied);
                }
                // No object waits for what nobody queues with.
                Removal::Left(what) => {
                    tracing::warn!(lock = %resolved.key, what, "The nodes of a lock stay");
                    let note = format!("the object goes, and its nodes in ZooKeeper stay: {what}");
                    applied.notices.push(Notice::new(Reason::NodesLeft, note));
                }
                // The picture says who, or will.
                Removal::InUse => return Ok(applied),
            }
        }
    }
    let roles = roles.iter().map(|change| Ok(set_role(ctx, resolved, change)));
    stream::iter(roles)
        .try_buffer_unordered(ROLES)
        .try_collect::<()>()
        .await?;
    match handoff {
        Handoff::None => {}
        Handoff::Rollout(request, trial) => {
            let yielded = ctx.memories.of(&resolved.key).yielded;
            let rest = yielded.map_or(Duration::ZERO, |at| YIELD_PAUSE.saturating_sub(at.elapsed()));
            if rest.is_zero() {
                step_down(ctx, way, resolved, request, "rollout", &mut applied).await?;
                applied.trial = Some(trial.clone());
                ctx.memories
                    .edit(&resolved.key, |memory| memory.trial = Some(trial.clone()));
            } else {
                applied.again = applied.again.into_iter().chain([rest]).min();
            }
        }
        Handoff::Asked(request) => {
            step_down(ctx, way, resolved, request, "user", &mut applied).await?;
            applied.version = acknowledge(ctx, resolved).await?;
        }
        Handoff::Refused(refusal) => {
            applied
                .notices
                .push(Notice::new(Reason::HandoffRefused, refusal.as_str()));
            applied.version = acknowledge(ctx, resolved).await?;
        }
    }
    if *finalizer == Finalizer::Remove {
        set_finalizer(ctx, resolved, false).await?;
        applied.is_gone = true;
    }
    Ok(applied)
}

/// Lets an object go whose nodes are out of reach for good: the credentials are gone, or the ensemble is another one.
///
/// # Errors
/// Those of the API server; and when this replica does not lead.
pub async fn let_go(ctx: &Context, resolved: &Resolved) -> Result<(), Error> {
    tracing::warn!(lock = %resolved.key, "There is no way to the ensemble of a lock; its nodes stay there");
    set_finalizer(ctx, resolved, false).await.map(drop)
}

/// How long the finalizer can wait. It comes before the nodes are made, so that none is left behind, and
/// keeps an object while somebody holds. But where the nodes are there already, an operator that has just been
/// started, and is new to ten thousand objects, writes what people look at first.
fn finalizer_rest(has_nodes: bool, uptime: Duration) -> Duration {
    if has_nodes {
        FINALIZER_DELAY.saturating_sub(uptime)
    } else {
        Duration::ZERO
    }
}

async fn ensure(
    ctx: &Context,
    way: &Way,
    resolved: &Resolved,
    valid: &Result<Valid, Problem>,
    applied: &mut Applied,
) -> Result<(), Error> {
    let valid = match valid {
        Ok(valid) => valid,
        Err(invalid) => {
            applied.not_ready = Some(invalid.clone());
            return Ok(());
        }
    };
    let memory = ctx.memories.of(&resolved.key);
    let session = way.session();
    let identities: Vec<_> = valid
        .identities
        .iter()
        .map(|identity| identity.acl_id())
        .collect();
    let agreement = Agreement::of(mode(&resolved.lock.spec));
    let is_in_order = |known: &Provisioned| {
        known.session == session
            && known.identities == identities
            && known.agreement == agreement
            && known.at.elapsed() < RECHECK
    };
    if resolved.queue.exists && memory.provisioned.as_ref().is_some_and(is_in_order) {
        return Ok(());
    }
    ctx.leadership.check()?;
    let key = &resolved.key;
    let ensured = async {
        let repairs = way.ensure_lock(key, &valid.identities).await?;
        let agreed = way.agree(key, &valid.identities, agreement).await?;
        Ok::<_, TreeError>((repairs, agreed))
    };
    match ensured.await {
        Ok((repairs, agreed)) => {
            if was_ready(resolved) && repairs.made + repairs.rights > 0 {
                applied.notices.push(Notice::new(
                    Reason::NodesRepaired,
                    format!(
                        "nodes in ZooKeeper were changed by somebody: {} made anew, rights of {} restored",
                        repairs.made, repairs.rights
                    ),
                ));
            }
            // It is tried again when somebody leaves the queue: that is a change of the picture.
            if let Agreed::Pending { before } = agreed {
                applied.not_ready = Some(pending(before, agreement, &resolved.queue));
                return Ok(());
            }
            ctx.memories.edit(&resolved.key, |memory| {
                memory.provisioned = Some(Provisioned {
                    at: Instant::now(),
                    session,
                    identities,
                    agreement,
                });
            });
        }
        Err(error @ (TreeError::Foreign { .. } | TreeError::TooLong { .. })) => {
            applied.not_ready = Some(Problem {
                reason: lockkeeper_crds::lock::Reason::ProvisioningFailed,
                message: error.to_string(),
            });
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// What has to happen before another setting of the lock is in force.
fn pending(before: Option<Agreement>, wanted: Agreement, queue: &Queue) -> Problem {
    let before = before.map_or_else(|| "something else".to_owned(), |before| before.to_string());
    // ZooKeeper does not tell who queues from what is there besides.
    let besides = match queue.bystanders().min() {
        Some(child) => format!(
            "; and delete the node {child} below the lock root, which is nobody's place in the queue and keeps the root \
             from being made anew"
        ),
        None => String::new(),
    };
    Problem::new(
        lockkeeper_crds::lock::Reason::AgreementPending,
        format!(
            "the contenders in the queue have agreed on {before}; {wanted} comes into force when the queue is empty: \
             scale the workload to zero, or restart its pods all at once{besides}"
        ),
    )
}

/// Whether the nodes were in order when somebody looked last: what is missing now was taken away.
fn was_ready(resolved: &Resolved) -> bool {
    let status = resolved.lock.status.iter();
    status
        .flat_map(|status| &status.conditions)
        .any(|one| one.type_ == ConditionType::Ready.as_str() && one.status == "True")
}

async fn step_down(
    ctx: &Context,
    way: &Way,
    resolved: &Resolved,
    request: &Request,
    cause: &'static str,
    applied: &mut Applied,
) -> Result<(), Error> {
    ctx.leadership.check()?;
    let is_new = way.request_yield(&resolved.key, &request.request).await?;
    if is_new {
        ctx.metrics.handoffs.get_or_create(&Cause { cause }).inc();
        ctx.memories
            .edit(&resolved.key, |memory| memory.yielded = Some(Instant::now()));
        tracing::info!(lock = %resolved.key, contenders = ?request.request.contenders, cause, "Handoff requested");
        applied
            .notices
            .push(Notice::new(Reason::HandoffRequested, request.note.as_str()));
    }
    Ok(())
}

async fn set_role(ctx: &Context, resolved: &Resolved, change: &RoleChange) -> Result<(), Error> {
    ctx.leadership.check()?;
    ctx.metrics.wrote("role");
    let namespace = &resolved.key.namespace;
    // With the UID as a condition: the API server refuses it for another pod of this name.
    let patch = json!({"metadata": {"uid": change.uid, "labels": {keys::ROLE: change.role.as_str()}}});
    match parts::patch::<Pod>(&ctx.client, namespace, &change.pod, &Patch::Merge(patch)).await {
        Ok(_) => ctx
            .pods
            .set_role(&resolved.key, &change.pod, &change.uid, change.role),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => return Err(Error::writing("the role of a pod")(error)),
    }
    Ok(())
}

async fn acknowledge(ctx: &Context, resolved: &Resolved) -> Result<Option<String>, Error> {
    let patch = json!({"metadata": {"annotations": {HANDOFF: null}}});
    patch_lock(ctx, resolved, "annotation", &Patch::Merge(patch)).await
}

async fn set_finalizer(ctx: &Context, resolved: &Resolved, is_wanted: bool) -> Result<Option<String>, Error> {
    let key = &resolved.key;
    let now = Finalizers::of(&ctx.client, &key.namespace, &key.name).await;
    let Some(now) = now.map_err(Error::reading("the finalizers of a DistributedLock"))? else {
        return Ok(None);
    };
    match now.patch(is_wanted, resolved.lock.resource_version()) {
        Some(patch) => patch_lock(ctx, resolved, "finalizer", &patch).await,
        None => Ok(resolved.lock.resource_version()),
    }
}

/// Tells the object's version after that; `None` when it is gone.
async fn patch_lock(
    ctx: &Context,
    resolved: &Resolved,
    kind: &'static str,
    patch: &Patch<impl serde::Serialize + std::fmt::Debug>,
) -> Result<Option<String>, Error> {
    ctx.leadership.check()?;
    ctx.metrics.wrote(kind);
    let LockKey { namespace, name } = &resolved.key;
    match parts::patch::<DistributedLock>(&ctx.client, namespace, name, patch).await {
        Ok(lock) => Ok(lock.metadata.resource_version),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(Error::writing("the DistributedLock")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Contender;
    use lockkeeper_lock::FencingToken;

    #[test]
    fn a_child_that_keeps_another_setting_from_coming_into_force_is_named() {
        let [before, wanted] =
            [lockkeeper_lock::Mode::Exclusive, lockkeeper_lock::Mode::Write].map(Agreement::of);
        let of = |name: &str, is_ephemeral| {
            let child = Contender::read(name, FencingToken(1), is_ephemeral, b"");
            pending(Some(before), wanted, &Queue::of(true, [child])).message
        };
        let sentence = of("litter", false);
        assert!(
            sentence.contains("delete the node litter below the lock root"),
            "{sentence}"
        );
        for sentence in [of("_c_x-lock-0000000001", true), of("stranger", true)] {
            assert!(sentence.ends_with("restart its pods all at once"), "{sentence}");
        }
    }

    #[test]
    fn only_an_operator_that_was_just_started_lets_finalizers_wait_and_never_before_the_nodes_are_made() {
        let second = Duration::from_secs(1);
        assert_eq!(finalizer_rest(false, second), Duration::ZERO);
        assert_eq!(finalizer_rest(true, second), FINALIZER_DELAY - second);
        assert_eq!(finalizer_rest(true, FINALIZER_DELAY), Duration::ZERO);
    }
}
