//! First step: everything that has to be known, read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, Client, Resource, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::{DistributedLockSpec, Handoff, LockMode, Trial};
use lockkeeper_lock::{Mode, Participant};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::context::Context;
use crate::error::Error;
use crate::layout::LockKey;
use crate::parts::{
    self, ControllerRevisionPart, DaemonSetPart, DeploymentPart, REVISION, ReplicaSetPart, StatefulSetPart,
};
use crate::picture::Queue;
use crate::pods::PodFacts;
use crate::rollout::{self, Candidate, Owner, Workload, trial};
use crate::secrets::{Identities, UnusableSecret};
use crate::status::holds;

/// How long a revision on trial has to hold the lock in one go. As long as the kubelet takes until it forgets that a
/// container ended (twice its longest back-off of five minutes).
const TRIAL: Duration = Duration::from_secs(600);

/// How long the workload of a lock is looked for. Who may write in its namespace decides how much there is to be read.
const LOOKUP: Duration = Duration::from_secs(10);

/// What is known of a lock.
#[derive(Debug)]
pub struct Resolved {
    /// Which one.
    pub key: LockKey,
    /// The object.
    pub lock: Arc<DistributedLock>,
    /// The queue.
    pub queue: Queue,
    /// The same in order.
    pub participants: Vec<Participant>,
    /// The pods that stand behind it.
    pub pods: BTreeMap<String, PodFacts>,
    /// The namespace's identities.
    pub identities: Option<Result<Identities, UnusableSecret>>,
    /// A workload in the middle of a rollout, and its pods in the queue.
    pub rollout: Option<(Vec<Candidate>, Workload)>,
    /// Whether there may be one that was not found in time: nothing is handed over then.
    pub is_late: bool,
    /// How the last handoff of a rollout turned out, as long as that counts.
    pub trial: Option<Trial>,
}

/// Reads what is known of a lock with this queue. Workloads are only read where revisions differ.
///
/// # Errors
/// Those of the API server.
pub async fn resolve(
    ctx: &Context,
    queue: Queue,
    key: LockKey,
    lock: Arc<DistributedLock>,
) -> Result<Resolved, Error> {
    let participants = queue.participants(mode(&lock.spec));
    let pods = ctx.pods.of(&key);
    let (rollout, is_late) = match lock.spec.handoff {
        Handoff::Never => (None, false),
        Handoff::OnRollout => in_time(&key, rollout(ctx, &key, &participants, &pods)).await?,
    };
    let trial = match lock.spec.handoff {
        Handoff::Never => None,
        Handoff::OnRollout => tried(ctx, &key, &lock, &participants, &pods, rollout.as_ref()),
    };
    Ok(Resolved {
        trial,
        identities: ctx.secrets.of(&key.namespace),
        key,
        lock,
        queue,
        participants,
        pods,
        rollout,
        is_late,
    })
}

/// What is found within [`LOOKUP`], and whether that was over before.
async fn in_time<T>(
    key: &LockKey,
    found: impl Future<Output = Result<Option<T>, Error>>,
) -> Result<(Option<T>, bool), Error> {
    if let Ok(found) = tokio::time::timeout(LOOKUP, found).await {
        return Ok((found?, false));
    }
    tracing::debug!(lock = %key, "The workload was not read within {LOOKUP:?}; nothing is handed over");
    Ok((None, true))
}

/// How the last handoff of a rollout turned out: by the status, which outlives this operator.
fn tried(
    ctx: &Context,
    key: &LockKey,
    lock: &DistributedLock,
    participants: &[Participant],
    pods: &BTreeMap<String, PodFacts>,
    rollout: Option<&(Vec<Candidate>, Workload)>,
) -> Option<Trial> {
    let written = lock.status.as_ref().and_then(|status| status.trial.clone());
    let memory = ctx.memories.of(key);
    // Nobody can say yet that no pod of a revision is left.
    if !*ctx.pods.ready().borrow() {
        return memory.trial.or(written);
    }
    let known = memory.trial.iter().chain(&written);
    let judged = known
        .filter_map(|trial| trial::judged(trial, participants, pods, rollout))
        .next();
    let holder = judged
        .as_ref()
        .and_then(|trial| trial::holder(trial, participants, pods));
    let is_over = memory
        .trying
        .as_ref()
        .is_some_and(|(_, since)| since.elapsed() >= TRIAL);
    ctx.memories.edit(key, |memory| {
        if is_over || memory.trial == written {
            memory.trial = None;
        }
        let is_same = matches!((&memory.trying, holder), (Some((before, _)), Some(now)) if before == now);
        if !is_same || is_over {
            memory.trying = holder.map(|holder| (holder.to_owned(), Instant::now()));
        }
    });
    judged.filter(|_| !is_over)
}

/// The mode of a lock for its queue.
pub fn mode(spec: &DistributedLockSpec) -> Mode {
    match spec.mode {
        LockMode::ReadWrite => Mode::Write,
        LockMode::Exclusive => match u32::try_from(spec.max_holders)
            .ok()
            .and_then(|n| n.try_into().ok())
        {
            None => Mode::Exclusive,
            Some(std::num::NonZeroU32::MIN) => Mode::Exclusive,
            Some(holders) => Mode::Semaphore(holders),
        },
    }
}

async fn rollout(
    ctx: &Context,
    key: &LockKey,
    participants: &[Participant],
    pods: &BTreeMap<String, PodFacts>,
) -> Result<Option<(Vec<Candidate>, Workload)>, Error> {
    let holding = participants.iter().filter(|one| holds(one));
    for owner in holding.filter_map(|one| facts(one, pods)?.owner.as_ref()) {
        let queue = candidates(participants, pods, owner);
        if rollout::is_mixed(&queue)
            && let Some(workload) = workload(&ctx.client, &key.namespace, owner).await?
        {
            return Ok(Some((queue, workload)));
        }
    }
    Ok(None)
}

fn facts<'a>(one: &Participant, pods: &'a BTreeMap<String, PodFacts>) -> Option<&'a PodFacts> {
    let pod = one.data.pod.as_ref()?;
    pods.get(&pod.name).filter(|facts| facts.uid == pod.uid)
}

fn candidates(
    participants: &[Participant],
    pods: &BTreeMap<String, PodFacts>,
    owner: &Owner,
) -> Vec<Candidate> {
    participants
        .iter()
        .filter_map(|one| {
            let facts = facts(one, pods).filter(|facts| facts.owner.as_ref() == Some(owner))?;
            Some(Candidate {
                contender: one.name.clone(),
                pod: one.data.pod.as_ref()?.name.clone(),
                uid: facts.uid.clone(),
                revision: facts.revision.clone()?,
                is_holder: holds(one),
                is_healthy: facts.is_healthy,
                ends: facts.ends,
            })
        })
        .collect()
}

/// Reads a workload live: a cache that lags would move the lock to a revision that was rolled back.
async fn workload(client: &Client, namespace: &str, owner: &Owner) -> Result<Option<Workload>, Error> {
    match owner {
        Owner::Deployment(name) => deployment(client, namespace, name).await,
        Owner::StatefulSet(name) => {
            let api: Api<StatefulSetPart> = Api::namespaced(client.clone(), namespace);
            let found = api.get_opt(name).await.map_err(Error::reading("a StatefulSet"))?;
            Ok(found.map(|set| {
                let spec = set.spec.unwrap_or_default();
                let rolling = spec.update_strategy.rolling_update.unwrap_or_default();
                let start = spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0);
                Workload::StatefulSet {
                    is_on_delete: is_on_delete(spec.update_strategy.r#type.as_ref()),
                    first_updated: start + rolling.partition.unwrap_or(0),
                    current: set.status.and_then(|status| status.update_revision),
                }
            }))
        }
        Owner::DaemonSet(name) => {
            let api: Api<DaemonSetPart> = Api::namespaced(client.clone(), namespace);
            let found = api.get_opt(name).await.map_err(Error::reading("a DaemonSet"))?;
            let Some(set) = found else { return Ok(None) };
            let uid = set.uid();
            let spec = set.spec.unwrap_or_default();
            let revisions: Api<ControllerRevisionPart> = Api::namespaced(client.clone(), namespace);
            let number = |revision: &ControllerRevisionPart| Some(revision.revision);
            let newest = newest(&revisions, &spec.selector, uid.as_deref(), number).await;
            let newest = newest.map_err(Error::reading("ControllerRevisions"))?;
            Ok(Some(Workload::DaemonSet {
                is_on_delete: is_on_delete(spec.update_strategy.r#type.as_ref()),
                current: newest
                    .and_then(|revision| revision.labels().get("controller-revision-hash").cloned()),
            }))
        }
    }
}

async fn deployment(client: &Client, namespace: &str, name: &str) -> Result<Option<Workload>, Error> {
    let deployments: Api<DeploymentPart> = Api::namespaced(client.clone(), namespace);
    let found = deployments
        .get_opt(name)
        .await
        .map_err(Error::reading("a Deployment"))?;
    let Some(deployment) = found else { return Ok(None) };
    let uid = deployment.uid();
    let spec = deployment.spec.unwrap_or_default();
    let sets: Api<ReplicaSetPart> = Api::namespaced(client.clone(), namespace);
    let number = |set: &ReplicaSetPart| set.annotations().get(REVISION)?.parse().ok();
    let newest = newest(&sets, &spec.selector, uid.as_deref(), number).await;
    let newest = newest.map_err(Error::reading("ReplicaSets"))?;
    Ok(Some(Workload::Deployment {
        is_paused: spec.paused.unwrap_or(false),
        current: newest.and_then(|set| set.labels().get("pod-template-hash").cloned()),
    }))
}

fn is_on_delete(strategy: Option<&parts::Word>) -> bool {
    strategy.is_some_and(|strategy| strategy.0 == "OnDelete")
}

/// The one with the highest number of those that a workload owns; `None`, too, when there are more than are read: then
/// it is not known which is current, and nothing is handed over.
async fn newest<P>(
    api: &Api<P>,
    selector: &LabelSelector,
    uid: Option<&str>,
    number: impl Fn(&P) -> Option<i64>,
) -> Result<Option<P>, kube::Error>
where
    P: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut newest: Option<(Option<i64>, P)> = None;
    let take = |one: P| {
        let this = number(&one);
        let is_newer = newest.as_ref().is_none_or(|(number, _)| this >= *number);
        if is_newer && is_owned(one.owner_references(), uid) {
            newest = Some((this, one));
        }
    };
    let is_all = parts::list(api, selected(selector), take).await?;
    Ok(newest.filter(|_| is_all).map(|(_, one)| one))
}

fn selected(selector: &LabelSelector) -> ListParams {
    // A selector of the API always is one of this library; if not, all are listed and filtered.
    match Selector::try_from(selector.clone()) {
        Ok(selector) => ListParams::default().labels_from(&selector),
        Err(_) => ListParams::default(),
    }
}

fn is_owned(owners: &[OwnerReference], uid: Option<&str>) -> bool {
    owners
        .iter()
        .any(|owner| owner.controller == Some(true) && Some(owner.uid.as_str()) == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_workload_that_takes_too_long_to_be_read_is_none_and_holds_nothing_up() {
        let key = LockKey::new("evil", "report");
        let begin = Instant::now();
        let never = in_time::<()>(&key, std::future::pending()).await.unwrap();
        assert_eq!((never, begin.elapsed()), ((None, true), LOOKUP));
        let found = in_time(&key, async { Ok(Some(1)) }).await.unwrap();
        assert_eq!(found, (Some(1), false));
    }
}
