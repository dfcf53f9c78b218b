//! Fifth step: the status, where it changed, and events for people.

use std::time::Duration;

use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::{ConditionType, DistributedLockStatus, Reason as ConditionReason};
use lockkeeper_lock::{CleanRelease, FencingToken, is_contender};
use tokio::time::Instant;

use super::apply::Applied;
use super::resolve::Resolved;
use crate::context::Context;
use crate::error::{Error, Problem};
use crate::events::{Notice, Reason};
use crate::inject::settings::word_of;
use crate::metrics::OfLock;
use crate::parts::LockPart;
use crate::picture::Queue;
use crate::rollout::trial;
use crate::status::{self, Observation, Readiness, is_between_holders, named};
use crate::way::Way;

/// Least time between two writes of one status.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a lock may be between two holders before its status says so: a few round trips to the
/// ensemble. Below, a handoff is one write, with the new holder.
const BETWEEN: Duration = Duration::from_millis(200);

/// Writes the status if it changed, tells events, and says after which time there is more to do.
///
/// # Errors
/// Those of the API server; and when this replica does not lead.
pub async fn report(
    ctx: &Context,
    way: &Way,
    resolved: &Resolved,
    applied: Applied,
) -> Result<Option<Duration>, Error> {
    let Applied {
        not_ready,
        mut notices,
        is_gone,
        again,
        trial,
        version,
    } = applied;
    if is_gone {
        tell(ctx, resolved, &notices).await;
        ctx.memories.forget(&resolved.key);
        ctx.metrics.losses.remove(&OfLock::from(&resolved.key));
        return Ok(None);
    }
    if let Some(rest) = still_between(ctx, resolved) {
        tell(ctx, resolved, &notices).await;
        return Ok(Some(rest));
    }
    let previous = resolved.lock.status.clone().unwrap_or_default();
    let seen = Observation {
        generation: resolved.lock.metadata.generation,
        queue: &resolved.queue,
        participants: &resolved.participants,
        pods: &resolved.pods,
        readiness: readiness(resolved, not_ready),
        trial: trial.or_else(|| resolved.trial.clone()),
    };
    let status = status::observed(&previous, &seen, Timestamp::now());
    let version = version.or_else(|| resolved.lock.resource_version());
    let written = write(ctx, resolved, &previous, &status, version, true).await?;
    if written == Written::Now {
        let lost = lost(ctx, way, resolved, &previous, &status).await;
        notices.extend(news(&previous, &status, &lost));
    }
    tell(ctx, resolved, &notices).await;
    Ok(match written {
        Written::After(rest) => Some(again.map_or(rest, |again| again.min(rest))),
        Written::Now | Written::Unchanged => again,
    })
}

/// Says in the status that there is no way to the ensemble. Any replica may, where it is the operator's
/// own: nobody leads then.
///
/// # Errors
/// Those of the API server; and when this replica has to lead and does not.
pub async fn report_loss(
    ctx: &Context,
    resolved: &Resolved,
    problem: &Problem,
    as_leader: bool,
) -> Result<Option<Duration>, Error> {
    let previous = resolved.lock.status.clone().unwrap_or_default();
    let generation = resolved.lock.metadata.generation;
    let status = status::out_of_reach(&previous, generation, problem, Timestamp::now());
    let version = resolved.lock.resource_version();
    match write(ctx, resolved, &previous, &status, version, as_leader).await? {
        Written::After(rest) => return Ok(Some(rest)),
        Written::Now => tell(ctx, resolved, &news(&previous, &status, &[])).await,
        Written::Unchanged => {}
    }
    Ok(None)
}

fn still_between(ctx: &Context, resolved: &Resolved) -> Option<Duration> {
    let is_between = is_between_holders(&resolved.participants);
    let mut rest = None;
    ctx.memories.edit(&resolved.key, |memory| {
        if is_between {
            let since = *memory.between.get_or_insert_with(Instant::now);
            rest = BETWEEN
                .checked_sub(since.elapsed())
                .filter(|rest| !rest.is_zero());
        } else {
            memory.between = None;
        }
    });
    rest
}

fn readiness(resolved: &Resolved, not_ready: Option<Problem>) -> Readiness {
    if resolved.lock.metadata.deletion_timestamp.is_some() {
        let holders: Vec<_> = resolved
            .participants
            .iter()
            .filter(|one| status::holds(one))
            .filter_map(|one| Some(one.data.pod.as_ref()?.name.as_str()))
            .collect();
        let message = match holders.as_slice() {
            [] => waits_for(&resolved.queue),
            pods => format!(
                "being deleted: waits until the lock is not held by {}",
                pods.join(", ")
            ),
        };
        return Readiness::NotReady(ConditionReason::Deleting, message);
    }
    match not_ready.or_else(|| stranger(resolved)) {
        None => match (held_back(resolved), outdated(resolved)) {
            (Some(message), _) => Readiness::HeldBack(message),
            (None, pods) if pods.is_empty() => Readiness::Ready,
            (None, pods) => Readiness::Outdated(pods),
        },
        Some(Problem { reason, message }) => Readiness::NotReady(reason, message),
    }
}

/// What keeps the nodes of a lock that nobody holds. A contender that belongs to no session goes with nobody.
fn waits_for(queue: &Queue) -> String {
    let in_queue = queue
        .contenders()
        .filter(|node| node.is_ephemeral || is_contender(&node.name));
    match in_queue.min_by_key(|node| &node.name) {
        Some(node) if node.is_ephemeral => {
            format!("being deleted: waits until {} has left the queue", node.name)
        }
        Some(node) => format!(
            "being deleted: waits until {} has left the queue, a node that belongs to no session: delete it, if nobody \
             stands there",
            node.name
        ),
        None => "being deleted: its nodes in ZooKeeper are being removed".to_owned(),
    }
}

/// Why no rollout goes on, if one does not.
fn held_back(resolved: &Resolved) -> Option<String> {
    let trial = resolved.trial.as_ref()?;
    trial::held_back(trial, &resolved.participants, &resolved.pods)
}

/// Pods that were made with other settings of the lock: it was changed since, or made after them.
fn outdated(resolved: &Resolved) -> Vec<String> {
    let word = word_of(&resolved.lock.spec);
    let pods = resolved.pods.iter();
    let pods = pods.filter(|(_, pod)| !pod.is_over && pod.settings.as_ref().is_some_and(|own| *own != word));
    pods.map(|(name, _)| name.clone()).collect()
}

/// A client in the queue beside which no keeper holds the lock.
fn stranger(resolved: &Resolved) -> Option<Problem> {
    let stranger = resolved.queue.strangers().min()?;
    let message = format!(
        "the node {stranger} below the lock root belongs to a client whose place in the queue cannot be told from that \
         name, so the lock is not held beside it: end that client, or give it a lock root of its own"
    );
    Some(Problem::new(ConditionReason::UnknownContender, message))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Now,
    Unchanged,
    /// Not before this time is over.
    After(Duration),
}

async fn write(
    ctx: &Context,
    resolved: &Resolved,
    previous: &DistributedLockStatus,
    status: &DistributedLockStatus,
    version: Option<String>,
    as_leader: bool,
) -> Result<Written, Error> {
    if status == previous {
        return Ok(Written::Unchanged);
    }
    let written = ctx.memories.of(&resolved.key).written;
    if let Some(rest) = written
        .and_then(|at| PAUSE.checked_sub(at.elapsed()))
        .filter(|rest| !rest.is_zero())
    {
        return Ok(Written::After(rest));
    }
    if as_leader {
        ctx.leadership.check()?;
    }
    ctx.metrics.wrote("status");
    let api: Api<LockPart> = Api::namespaced(ctx.client.clone(), &resolved.key.namespace);
    let patch = on_top_of(version, status);
    match api
        .patch_status(&resolved.key.name, &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Written::Unchanged),
        Err(error) => return Err(Error::writing("the status")(error)),
    }
    ctx.memories
        .edit(&resolved.key, |memory| memory.written = Some(Instant::now()));
    Ok(Written::Now)
}

/// A status, as a whole: a merge would keep what is not there any more. And only on top of the version that was
/// seen: a request may be under way for longer than the lease under which it was begun, and come when the next
/// leader has written.
pub(super) fn on_top_of(version: Option<String>, status: &DistributedLockStatus) -> Patch<DistributedLock> {
    let add = |path: &str, value| {
        let path = path.parse().expect("a pointer");
        PatchOperation::Add(AddOperation { path, value })
    };
    Patch::Json(JsonPatch(vec![
        add("/metadata/resourceVersion", version.into()),
        add(
            "/status",
            serde_json::to_value(status).expect("strings and numbers"),
        ),
    ]))
}

/// The contenders of the status before that held, and went without a clean release. Counts them: their own keepers cannot,
/// where they end with it.
///
/// Only once for each, for a status is written on top of the one that was seen, whichever replica does it.
async fn lost(
    ctx: &Context,
    way: &Way,
    resolved: &Resolved,
    previous: &DistributedLockStatus,
    status: &DistributedLockStatus,
) -> Vec<String> {
    let gone = gone(previous, status);
    if gone.is_empty() {
        return gone.into_iter().map(|one| one.contender).collect();
    }
    match way.lost(&resolved.key, &gone).await {
        Ok(lost) => {
            let lost = gone.into_iter().zip(lost).filter(|(_, is_lost)| *is_lost);
            let lost: Vec<_> = lost.map(|(one, _)| one.contender).collect();
            if !lost.is_empty() {
                tracing::warn!(lock = %resolved.key, contenders = ?lost, "A holder went without a clean release");
                let losses = ctx.metrics.losses.get_or_create(&OfLock::from(&resolved.key));
                losses.inc_by(lost.len() as u64);
            }
            lost
        }
        Err(error) => {
            tracing::warn!(lock = %resolved.key, %error, "Failed to see how a holder went");
            Vec::new()
        }
    }
}

/// Who held by the status before, and does not by this one. Others than keepers of ours write down neither when they got
/// the lock nor how they went.
fn gone(previous: &DistributedLockStatus, status: &DistributedLockStatus) -> Vec<CleanRelease> {
    let still = |contender: &str| {
        let holders = status.holders.iter().map(|one| &one.contender);
        let waiting = status.queue.iter().map(|one| &one.contender);
        holders.chain(waiting).any(|one| one == contender)
    };
    let gone = previous.holders.iter();
    gone.filter(|holder| holder.since.is_some() && !still(&holder.contender))
        .map(|holder| CleanRelease {
            contender: holder.contender.clone(),
            token: FencingToken(holder.fencing_token),
        })
        .collect()
}

/// What changed for people. A first status is no change: ten thousand locks that an operator sees for
/// the first time are no news.
fn news(previous: &DistributedLockStatus, status: &DistributedLockStatus, lost: &[String]) -> Vec<Notice> {
    if previous.observed_generation.is_none() {
        return Vec::new();
    }
    let mut notices = Vec::new();
    let is_in = |contender: &str, list: &DistributedLockStatus| {
        list.holders.iter().any(|holder| holder.contender == contender)
    };
    for holder in &previous.holders {
        if !is_in(&holder.contender, status) {
            notices.push(if lost.contains(&holder.contender) {
                let note = format!(
                    "{} holds the lock no more, and did not release it: its session expired, or its node in ZooKeeper was deleted",
                    holder.pod
                );
                Notice::new(Reason::LockLost, note)
            } else {
                let note = format!("{} holds the lock no more", holder.pod);
                Notice::new(Reason::LockReleased, note)
            });
        }
    }
    for holder in &status.holders {
        if !is_in(&holder.contender, previous) {
            let note = format!(
                "{} holds the lock under token {}",
                holder.pod, holder.fencing_token
            );
            notices.push(Notice::new(Reason::LockAcquired, note));
        }
    }
    let ready = |status: &DistributedLockStatus| {
        let ready = ConditionType::Ready.as_str();
        let found = status.conditions.iter().find(|one| one.type_ == ready);
        found.map(|one| (one.reason.clone(), one.message.clone()))
    };
    if let Some((reason, message)) = ready(status).filter(|now| ready(previous).as_ref() != Some(now)) {
        let reasons = [
            (ConditionReason::HandoffHeldBack, Reason::HandoffHeldBack),
            (ConditionReason::InvalidSpec, Reason::InvalidSpec),
            (ConditionReason::ProvisioningFailed, Reason::ProvisioningFailed),
            (ConditionReason::AgreementPending, Reason::ProvisioningFailed),
            (ConditionReason::UnknownContender, Reason::ProvisioningFailed),
            (ConditionReason::TooManyContenders, Reason::ProvisioningFailed),
            (ConditionReason::SecretUnusable, Reason::ProvisioningFailed),
            (ConditionReason::CredentialsRefused, Reason::ProvisioningFailed),
            (ConditionReason::TlsFailed, Reason::ProvisioningFailed),
            (ConditionReason::EnsembleNotAllowed, Reason::ProvisioningFailed),
            (ConditionReason::EnsembleUnusable, Reason::ProvisioningFailed),
            (ConditionReason::EnsembleChanged, Reason::EnsembleChanged),
        ];
        let told = reasons.iter().find(|(condition, _)| condition.as_str() == reason);
        if let Some((_, told)) = told {
            notices.push(Notice::new(*told, message));
        } else if reason == ConditionReason::Deleting.as_str() && !status.holders.is_empty() {
            let note = format!("waits until the lock is not held by {}", named(&status.holders));
            notices.push(Notice::new(Reason::DeletionWaits, note));
        }
    }
    notices
}

async fn tell(ctx: &Context, resolved: &Resolved, notices: &[Notice]) {
    let about = resolved.lock.object_ref(&());
    for notice in notices {
        notice.tell(&ctx.recorder, &ctx.metrics, &about).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Contender;

    #[test]
    fn the_status_of_an_object_that_is_being_deleted_names_who_stands_in_the_queue_and_nobody_else() {
        let of = |children: &[(&str, bool)]| {
            let children = children
                .iter()
                .map(|(name, is_ephemeral)| Contender::read(*name, FencingToken(1), *is_ephemeral, b""));
            waits_for(&Queue::of(true, children))
        };
        let waiter = ("_c_x-lock-0000000001", true);
        assert!(of(&[waiter, ("a-note", false)]).ends_with("until _c_x-lock-0000000001 has left the queue"));
        assert!(of(&[("stranger", true)]).contains("until stranger has left"));
        let forgotten = of(&[("_c_x-lock-0000000001", false)]);
        assert!(
            forgotten.contains("belongs to no session: delete it"),
            "{forgotten}"
        );
        for nobody in [&[][..], &[("a-note", false)]] {
            assert!(of(nobody).ends_with("its nodes in ZooKeeper are being removed"));
        }
    }
}
