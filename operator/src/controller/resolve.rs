//! First step: everything that has to be known, read.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, Client, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::{DistributedLockSpec, Handoff, LockMode};
use lockkeeper_lock::{Mode, Participant};

use crate::context::Context;
use crate::error::Error;
use crate::layout::LockKey;
use crate::picture::Queue;
use crate::pods::PodFacts;
use crate::rollout::{self, Candidate, Owner, Workload};
use crate::secrets::{Identities, UnusableSecret};
use crate::status::holds;

/// Annotation of a ReplicaSet: the higher, the newer; a rollback gives the old one a new number.
const REVISION: &str = "deployment.kubernetes.io/revision";

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
    let rollout = match lock.spec.handoff {
        Handoff::Never => None,
        Handoff::OnRollout => rollout(ctx, &key, &participants, &pods).await?,
    };
    Ok(Resolved {
        identities: ctx.secrets.of(&key.namespace),
        key,
        lock,
        queue,
        participants,
        pods,
        rollout,
    })
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
                revision: facts.revision.clone()?,
                is_holder: holds(one),
                is_healthy: facts.is_healthy,
            })
        })
        .collect()
}

/// Reads a workload live: a cache that lags would move the lock to a revision that was rolled back.
async fn workload(client: &Client, namespace: &str, owner: &Owner) -> Result<Option<Workload>, Error> {
    match owner {
        Owner::Deployment(name) => deployment(client, namespace, name).await,
        Owner::StatefulSet(name) => {
            let api: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
            let found = api.get_opt(name).await.map_err(Error::reading("a StatefulSet"))?;
            Ok(found.map(|set| {
                let spec = set.spec.unwrap_or_default();
                let strategy = spec.update_strategy.unwrap_or_default();
                let rolling = strategy.rolling_update.unwrap_or_default();
                let start = spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0);
                Workload::StatefulSet {
                    is_on_delete: strategy.type_.as_deref() == Some("OnDelete"),
                    first_updated: start + rolling.partition.unwrap_or(0),
                    current: set.status.and_then(|status| status.update_revision),
                }
            }))
        }
        Owner::DaemonSet(name) => {
            let api: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
            let found = api.get_opt(name).await.map_err(Error::reading("a DaemonSet"))?;
            let Some(set) = found else { return Ok(None) };
            let uid = set.uid();
            let spec = set.spec.unwrap_or_default();
            let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
            let list = revisions
                .list(&selected(&spec.selector))
                .await
                .map_err(Error::reading("ControllerRevisions"))?;
            let newest = list
                .items
                .into_iter()
                .filter(|revision| is_owned(revision.owner_references(), uid.as_deref()))
                .max_by_key(|revision| revision.revision);
            Ok(Some(Workload::DaemonSet {
                is_on_delete: spec
                    .update_strategy
                    .is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")),
                current: newest
                    .and_then(|revision| revision.labels().get("controller-revision-hash").cloned()),
            }))
        }
    }
}

async fn deployment(client: &Client, namespace: &str, name: &str) -> Result<Option<Workload>, Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let found = deployments
        .get_opt(name)
        .await
        .map_err(Error::reading("a Deployment"))?;
    let Some(deployment) = found else { return Ok(None) };
    let uid = deployment.uid();
    let spec = deployment.spec.unwrap_or_default();
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
    let list = sets
        .list(&selected(&spec.selector))
        .await
        .map_err(Error::reading("ReplicaSets"))?;
    let number = |set: &ReplicaSet| set.annotations().get(REVISION)?.parse::<i64>().ok();
    let newest = list
        .items
        .into_iter()
        .filter(|set| is_owned(set.owner_references(), uid.as_deref()))
        .max_by_key(number);
    Ok(Some(Workload::Deployment {
        is_paused: spec.paused.unwrap_or(false),
        current: newest.and_then(|set| set.labels().get("pod-template-hash").cloned()),
    }))
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
