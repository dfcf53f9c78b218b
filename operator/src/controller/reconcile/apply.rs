//! Fourth step: carries out the plan. All writes go through the [`Writer`].

use std::time::Duration;

use futures_util::{TryStreamExt, stream};
use kube::ResourceExt;
use lockkeeper_crds::lock::ConditionType;
use lockkeeper_lock::Agreement;

use super::build::{Finalizer, Nodes, Plan, RoleChange};
use super::claim;
use super::fenced;
use super::resolve::Resolved;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::memory::{Disorder, Order};
use crate::controller::writer::{LeasedWay, Writer};
use crate::identity::Identity;
use crate::kubernetes::events::{Notice, Reason};
use crate::zookeeper::nodes::{Agreed, Removal, TreeError};

mod handoff;

/// Least time between two attempts to bring another agreement into force.
const AGREE_AGAIN: Duration = Duration::from_secs(10);

/// How many role labels of one lock are written at once.
const ROLES: usize = 8;

/// The pause before the operator removes more of what is below the root of a deleted lock.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// For this time after its start an operator postpones the finalizers of objects whose nodes exist already.
const FINALIZER_DELAY: Duration = Duration::from_secs(60);

/// What carrying out a plan has led to.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) outcome: Outcome,
    pub(crate) notices: Vec<Notice>,
    /// The time for which the rest of the plan waits.
    pub(crate) again: Option<Duration>,
    /// The new version of the object, if it was changed.
    pub(crate) version: Option<String>,
}

/// How far a plan was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All that could be done now is done, and the status in the plan is right.
    #[default]
    Done,
    /// Something was found or done that the status in the plan does not say. This replica remembers it for the next
    /// plan.
    Outdated,
    /// The object is gone.
    Gone,
}

impl Applied {
    /// Lets the rest of the plan wait for this time at the longest.
    fn come_again(&mut self, rest: Duration) {
        self.again = self.again.into_iter().chain([rest]).min();
    }

    /// Notes that the object may have been changed, and has this version now.
    fn changed(&mut self, version: Option<String>) {
        self.version = version.or(self.version.take());
    }
}

/// Carries out the plan.
///
/// # Errors
/// Those of the ensemble and of the API server; and when this replica does not lead.
pub(crate) async fn apply(
    ctx: &Context,
    writer: Writer<'_>,
    resolved: &Resolved,
    plan: &Plan,
) -> Result<Applied, Error> {
    let Plan {
        claim,
        finalizer,
        nodes,
        roles,
        dead,
        handoff,
        status: _,
    } = plan;
    let mut applied = Applied::default();
    if let Some(claim) = claim {
        match claim::write(ctx, writer, resolved, claim).await? {
            Some(lock) => applied.changed(lock.resource_version()),
            None => {
                applied.outcome = Outcome::Gone;
                return Ok(applied);
            }
        }
    }
    let way = || resolved.situation.way().ok_or_else(unreachable_ensemble);
    if !dead.is_empty() {
        let removed = fenced::remove(ctx, writer, way()?, resolved, dead).await?;
        applied.again = removed.again;
        if removed.is_any {
            applied.outcome = Outcome::Outdated;
        }
    }
    if *finalizer == Finalizer::Add {
        match finalizer_rest(resolved.queue.exists, ctx.started.elapsed()) {
            Duration::ZERO => set_finalizer(ctx, writer, resolved, true, &mut applied).await?,
            rest => applied.come_again(rest),
        }
    }
    match nodes {
        Nodes::Leave => {}
        Nodes::Ensure {
            identities,
            agreement,
        } => {
            ensure(
                ctx,
                writer,
                way()?,
                resolved,
                identities,
                *agreement,
                &mut applied,
            )
            .await?
        }
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
    handoff::carry_out(ctx, writer, way, resolved, handoff, &mut applied).await?;
    if *finalizer == Finalizer::Remove {
        if resolved.situation.way().is_none() {
            tracing::warn!(lock = %resolved.key, "The operator cannot reach the lock's ensemble; the lock's nodes stay there");
        }
        set_finalizer(ctx, writer, resolved, false, &mut applied).await?;
        applied.outcome = Outcome::Gone;
    }
    Ok(applied)
}

/// Returns the error of a plan with nodes in an ensemble that is out of reach. Such a plan is a mistake: nodes are
/// planned only for a lock whose ensemble can be reached.
fn unreachable_ensemble() -> Error {
    Error::Tree(TreeError::Away(
        "the operator cannot reach the ensemble of the lock".to_owned(),
    ))
}

/// Returns how long the finalizer can wait. It is set before the nodes are made, so that none is left behind, and it
/// keeps an object while a pod holds. But if the nodes exist already, an operator that has just started, with ten
/// thousand objects to read, first writes what users look at.
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
    way: &LeasedWay,
    resolved: &Resolved,
    identities: &[Identity],
    agreement: Agreement,
    applied: &mut Applied,
) -> Result<(), Error> {
    let key = &resolved.key;
    let order = Order {
        session: way.session(),
        identities: identities.iter().map(Identity::acl_id).collect(),
        agreement,
    };
    let known = ctx.memories.of(key).nodes;
    let disorder = if resolved.queue.exists && known.are_in(&order) {
        ctx.memories.edit(key, |memory| memory.nodes.believed());
        None
    } else {
        // The status that we see may be older than the one that users see.
        let were_provided = was_ready(resolved) || known.were_for(&order.identities);
        let found = provide(
            writer,
            way,
            resolved,
            identities,
            agreement,
            were_provided,
            applied,
        )
        .await?;
        let result = found.clone().map_or(Ok(order), Err);
        ctx.memories.edit(key, |memory| memory.nodes.looked_at(result));
        found
    };
    if disorder.as_ref() != resolved.memory.nodes.disorder() {
        applied.outcome = Outcome::Outdated;
    }
    Ok(())
}

/// Brings the nodes of a lock into order; returns what is in the way of that. `were_provided` if they were in order before.
async fn provide(
    writer: Writer<'_>,
    way: &LeasedWay,
    resolved: &Resolved,
    identities: &[Identity],
    agreement: Agreement,
    were_provided: bool,
    applied: &mut Applied,
) -> Result<Option<Disorder>, Error> {
    let key = &resolved.key;
    let ensured = async {
        let repairs = writer.ensure_lock(way, key, identities).await?;
        let agreed = writer.agree(way, key, identities, agreement).await?;
        Ok::<_, Error>((repairs, agreed))
    };
    let (repairs, agreed) = match ensured.await {
        Ok(ensured) => ensured,
        Err(Error::Tree(error @ (TreeError::Foreign { .. } | TreeError::TooLong { .. }))) => {
            return Ok(Some(Disorder::Refused(error.to_string())));
        }
        Err(error) => return Err(error),
    };
    if were_provided && repairs.made + repairs.rights > 0 {
        applied.notices.push(Notice::new(
            Reason::NodesRepaired,
            format!(
                "another client changed nodes in ZooKeeper: {} created again, rights of {} restored",
                repairs.made, repairs.rights
            ),
        ));
    }
    match agreed {
        Agreed::Done => Ok(None),
        // It is tried again when a contender leaves the queue: that changes the picture. No event tells of the end of a
        // child that may not be read.
        Agreed::Pending { before } => {
            applied.come_again(AGREE_AGAIN.mul_f64(1.0 + fastrand::f64()));
            Ok(Some(Disorder::Agreed(before)))
        }
    }
}

/// Whether the nodes were in order at the last look: another client has deleted what is missing now.
fn was_ready(resolved: &Resolved) -> bool {
    let status = resolved.lock.status.as_ref();
    let ready = status.and_then(|status| status.condition(ConditionType::Ready));
    ready.is_some_and(|ready| ready.status == "True")
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

async fn set_finalizer(
    ctx: &Context,
    writer: Writer<'_>,
    resolved: &Resolved,
    is_wanted: bool,
    applied: &mut Applied,
) -> Result<(), Error> {
    let key = &resolved.key;
    let now = ctx.reader.finalizers(&key.namespace, &key.name).await;
    let Some(now) = now.map_err(Error::reading("the finalizers of a DistributedLock"))? else {
        return Ok(());
    };
    let version = applied
        .version
        .clone()
        .or_else(|| resolved.lock.resource_version());
    if let Some(patch) = now.patch(is_wanted, version) {
        applied.changed(writer.patch_lock(key, "finalizer", &patch).await?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_operator_that_was_just_started_lets_finalizers_wait_and_never_before_the_nodes_are_made() {
        let second = Duration::from_secs(1);
        assert_eq!(finalizer_rest(false, second), Duration::ZERO);
        assert_eq!(finalizer_rest(true, second), FINALIZER_DELAY - second);
        assert_eq!(finalizer_rest(true, FINALIZER_DELAY), Duration::ZERO);
    }
}
