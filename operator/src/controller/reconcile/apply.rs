//! Fourth step: carries out the plan. All writes go through the [`Writer`].

use std::time::Duration;

use futures_util::{TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::Patch;
use lockkeeper_crds::keys::HANDOFF;
use lockkeeper_crds::lock::{ConditionType, Trial};
use lockkeeper_lock::Agreement;
use serde_json::json;
use tokio::time::Instant;

use super::build::{Finalizer, Handoff, Nodes, Plan, Request, RoleChange};
use super::claim;
use super::fenced;
use super::resolve::{Resolved, mode};
use super::validate::Valid;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::memory::Provisioned;
use crate::controller::writer::Writer;
use crate::kubernetes::events::{Notice, Reason};
use crate::metrics::Cause;
use crate::problem::Problem;
use crate::zookeeper::client::Way;
use crate::zookeeper::nodes::{Agreed, Removal, TreeError};
use crate::zookeeper::queues::picture::{Contender, Queue};

/// How long nodes that were found in order are believed to be: rights that are changed by hand make
/// no event.
pub(crate) const RECHECK: Duration = Duration::from_secs(600);

/// Least time between two attempts to bring another agreement into force.
const AGREE_AGAIN: Duration = Duration::from_secs(10);

/// Least time between two yield requests for one lock: longer than a pod needs to stop and the next
/// one to begin, so that no lock goes through a workload in one rush.
const YIELD_PAUSE: Duration = Duration::from_secs(10);

/// Role labels of one lock that are written at once.
const ROLES: usize = 8;

/// Until more of what is below the root of a lock that goes is removed.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// For this time after its start an operator postpones the finalizers of objects whose nodes exist already.
const FINALIZER_DELAY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Why the lock is not ready, if it is not.
    pub(crate) not_ready: Option<Problem>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) is_gone: bool,
    /// The rest waits until then.
    pub(crate) again: Option<Duration>,
    /// The handoff of a rollout that was requested just now.
    pub(crate) trial: Option<Trial>,
    /// The object's version, if it was changed.
    pub(crate) version: Option<String>,
}

impl Applied {
    /// The rest waits for this time at the longest.
    fn come_again(&mut self, rest: Duration) {
        self.again = self.again.into_iter().chain([rest]).min();
    }
}

/// Carries out the plan.
///
/// # Errors
/// Those of the ensemble and of the API server; and when this replica does not lead.
pub(crate) async fn apply(
    ctx: &Context,
    writer: Writer<'_>,
    resolved: &mut Resolved,
    valid: &Result<Valid, Problem>,
    plan: &Plan,
) -> Result<Applied, Error> {
    let mut applied = Applied::default();
    if !claim::write(ctx, writer, resolved).await? {
        applied.is_gone = true;
        return Ok(applied);
    }
    let Plan {
        finalizer,
        nodes,
        roles,
        dead,
        handoff,
        status: _,
    } = plan;
    let resolved = &*resolved;
    let way = || resolved.situation.way().ok_or_else(unreachable_ensemble);
    if !dead.is_empty() {
        applied.again = fenced::remove(ctx, writer, way()?, resolved, dead).await?;
    }
    if *finalizer == Finalizer::Add {
        match finalizer_rest(resolved.queue.exists, ctx.started.elapsed()) {
            Duration::ZERO => applied.version = set_finalizer(ctx, writer, resolved, true).await?,
            rest => applied.come_again(rest),
        }
    }
    match nodes {
        Nodes::Leave => {}
        Nodes::Ensure => ensure(ctx, writer, way()?, resolved, valid, &mut applied).await?,
        Nodes::Remove => {
            match writer.remove_lock(way()?, &resolved.key).await? {
                Removal::Done => {}
                Removal::Goes => {
                    applied.again = Some(SWEEP_PAUSE);
                    return Ok(applied);
                }
                // Other children are no places in the queue, so no object waits for them.
                Removal::Left(what) => {
                    tracing::warn!(lock = %resolved.key, what, "The nodes of a lock stay");
                    let note = format!("the object is deleted, and its nodes in ZooKeeper stay: {what}");
                    applied.notices.push(Notice::new(Reason::NodesLeft, note));
                }
                // The picture names the contender in the queue, or will soon.
                Removal::InUse => return Ok(applied),
            }
        }
    }
    let roles = roles
        .iter()
        .map(|change| Ok(set_role(ctx, writer, resolved, change)));
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
                step_down(ctx, writer, way()?, resolved, request, "rollout", &mut applied).await?;
                applied.trial = Some(trial.clone());
                ctx.memories
                    .edit(&resolved.key, |memory| memory.trial = Some(trial.clone()));
            } else {
                applied.come_again(rest);
            }
        }
        Handoff::Asked(request) => {
            step_down(ctx, writer, way()?, resolved, request, "user", &mut applied).await?;
            applied.version = acknowledge(writer, resolved).await?;
        }
        Handoff::Refused(refusal) => {
            applied
                .notices
                .push(Notice::new(Reason::HandoffRefused, refusal.as_str()));
            applied.version = acknowledge(writer, resolved).await?;
        }
    }
    if *finalizer == Finalizer::Remove {
        if resolved.situation.way().is_none() {
            tracing::warn!(lock = %resolved.key, "There is no way to the ensemble of a lock; its nodes stay there");
        }
        set_finalizer(ctx, writer, resolved, false).await?;
        applied.is_gone = true;
    }
    Ok(applied)
}

/// Nodes are planned only for a lock whose ensemble can be reached.
fn unreachable_ensemble() -> Error {
    Error::Tree(TreeError::Away(
        "there is no way to the ensemble of the lock".to_owned(),
    ))
}

/// How long the finalizer can wait. It comes before the nodes are made, so that none is left behind, and
/// keeps an object while a pod holds. But if the nodes exist already, an operator that has just started, with ten
/// thousand objects to read, writes what users look at first.
fn finalizer_rest(has_nodes: bool, uptime: Duration) -> Duration {
    if has_nodes {
        FINALIZER_DELAY.saturating_sub(uptime)
    } else {
        Duration::ZERO
    }
}

async fn ensure(
    ctx: &Context,
    writer: Writer<'_>,
    way: &Way,
    resolved: &Resolved,
    valid: &Result<Valid, Problem>,
    applied: &mut Applied,
) -> Result<(), Error> {
    let Ok(valid) = valid else {
        return Ok(());
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
    let key = &resolved.key;
    // The status that we see may be older than the one that users see.
    let were_in_order = |known: &Provisioned| known.identities == identities;
    let was_provided = was_ready(resolved) || memory.provisioned.as_ref().is_some_and(were_in_order);
    let ensured = async {
        let repairs = writer.ensure_lock(way, key, &valid.identities).await?;
        let agreed = writer.agree(way, key, &valid.identities, agreement).await?;
        Ok::<_, Error>((repairs, agreed))
    };
    match ensured.await {
        Ok((repairs, agreed)) => {
            if was_provided && repairs.made + repairs.rights > 0 {
                applied.notices.push(Notice::new(
                    Reason::NodesRepaired,
                    format!(
                        "another client changed nodes in ZooKeeper: {} created again, rights of {} restored",
                        repairs.made, repairs.rights
                    ),
                ));
            }
            // It is tried again when a contender leaves the queue: that changes the picture. No event tells of the end of a
            // child that may not be read.
            if let Agreed::Pending { before } = agreed {
                applied.not_ready = Some(pending(before, agreement, &resolved.queue));
                applied.come_again(AGREE_AGAIN.mul_f64(1.0 + fastrand::f64()));
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
        Err(Error::Tree(error @ (TreeError::Foreign { .. } | TreeError::TooLong { .. }))) => {
            applied.not_ready = Some(Problem {
                reason: lockkeeper_crds::lock::Reason::ProvisioningFailed,
                message: error.to_string(),
            });
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What has to happen before another setting of the lock is in force.
fn pending(before: Option<Agreement>, wanted: Agreement, queue: &Queue) -> Problem {
    let before = before.map_or_else(|| "something else".to_owned(), |before| before.to_string());
    let hidden = queue
        .contenders()
        .filter(|child| child.is_unread())
        .map(|child| &*child.name)
        .min();
    let is_empty = queue.excess().is_none() && queue.contenders().all(Contender::is_unread);
    let sentence = if is_empty {
        let what = hidden.map_or_else(|| "its children".to_owned(), |child| format!("the node {child}"));
        format!(
            "{before} was agreed on, and {wanted} comes into force when the lock root has no children: delete {what} in \
             ZooKeeper, which the operator may not read"
        )
    } else {
        in_the_queue(&before, wanted, queue, hidden)
    };
    Problem::new(lockkeeper_crds::lock::Reason::AgreementPending, sentence)
}

fn in_the_queue(before: &str, wanted: Agreement, queue: &Queue, hidden: Option<&str>) -> String {
    // ZooKeeper does not distinguish contenders from other children.
    let besides = match queue.bystanders().min().or(hidden) {
        Some(child) => format!(
            "; and delete the node {child} below the lock root, which is no place in the queue and keeps the root \
             from being made anew"
        ),
        None => String::new(),
    };
    format!(
        "the contenders in the queue have agreed on {before}; {wanted} comes into force when the queue is empty: scale the \
         workload to zero, or restart its pods all at once{besides}"
    )
}

/// Whether the nodes were in order at the last look: another client has deleted what is missing now.
fn was_ready(resolved: &Resolved) -> bool {
    let status = resolved.lock.status.iter();
    status
        .flat_map(|status| &status.conditions)
        .any(|one| one.type_ == ConditionType::Ready.as_str() && one.status == "True")
}

async fn step_down(
    ctx: &Context,
    writer: Writer<'_>,
    way: &Way,
    resolved: &Resolved,
    request: &Request,
    cause: &'static str,
    applied: &mut Applied,
) -> Result<(), Error> {
    let is_new = writer.request_yield(way, &resolved.key, &request.request).await?;
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

async fn set_role(
    ctx: &Context,
    writer: Writer<'_>,
    resolved: &Resolved,
    change: &RoleChange,
) -> Result<(), Error> {
    let RoleChange { pod, uid, role } = change;
    if writer.set_role(&resolved.key.namespace, pod, uid, *role).await? {
        ctx.pods.set_role(&resolved.key, pod, uid, *role);
    }
    Ok(())
}

async fn acknowledge(writer: Writer<'_>, resolved: &Resolved) -> Result<Option<String>, Error> {
    let patch = json!({"metadata": {"annotations": {HANDOFF: null}}});
    writer
        .patch_lock(&resolved.key, "annotation", &Patch::Merge(patch))
        .await
}

async fn set_finalizer(
    ctx: &Context,
    writer: Writer<'_>,
    resolved: &Resolved,
    is_wanted: bool,
) -> Result<Option<String>, Error> {
    let key = &resolved.key;
    let now = ctx.reader.finalizers(&key.namespace, &key.name).await;
    let Some(now) = now.map_err(Error::reading("the finalizers of a DistributedLock"))? else {
        return Ok(None);
    };
    match now.patch(is_wanted, resolved.lock.resource_version()) {
        Some(patch) => writer.patch_lock(key, "finalizer", &patch).await,
        None => Ok(resolved.lock.resource_version()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
