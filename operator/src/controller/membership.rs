//! Before the first step: whether the ensemble that the operator reaches is the one that the lock is in.
//!
//! What all replicas of all versions agree on is the ID in the status: it is written on top of what was seen, and
//! before anything of the lock is made in the ensemble. It changes when no pod of the lock is left that was made for
//! another one. Both before and after that it rests for a while: replicas that were set up otherwise go, webhooks
//! hear of it, and pods that they have admitted meanwhile are there to be seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PatchParams};
use kube::{Api, Resource, ResourceExt};
use lockkeeper_crds::lock::Reason;
use lockkeeper_crds::{DistributedLock, keys};
use tokio::time::Instant;

use super::LOOK;
use super::report::on_top_of;
use crate::context::Context;
use crate::ensemble::Ensemble;
use crate::error::{Error, Problem};
use crate::events::{self, Notice};
use crate::layout::LockKey;
use crate::names;
use crate::parts::{self, LockPart, PodPart};
use crate::pods::PodFacts;
use crate::status::{claimed, dispute, resource_outdated};

/// How long nobody is left in the ensemble before, until the lock moves: longer than replicas of two settings run
/// beside each other in an upgrade.
const BEFORE: Duration = Duration::from_secs(30);

/// How long no pod is admitted after that: as long as the API server may be at work on a pod that a webhook has
/// admitted before it heard of the move (`--request-timeout`, by default a minute).
const AFTER: Duration = Duration::from_secs(60);

/// Pods named in a message; more are counted.
const NAMED: usize = 3;

/// How a lock stands with the ensemble that the operator reaches.
pub enum Membership {
    /// It is in it; but not ready, if there is a problem.
    Member(Arc<DistributedLock>, Option<Problem>, Option<Duration>),
    /// It is in another one, and is to be looked at again after this time.
    Stranger(Problem, Duration),
    /// The same, and nothing is left that keeps its object.
    Abandoned,
}

/// Finds out how a lock stands with `ensemble`, and puts it there if it is nowhere else.
///
/// # Errors
/// Those of the API server; and when this replica does not lead.
pub async fn membership(
    ctx: &Context,
    key: &LockKey,
    lock: Arc<DistributedLock>,
    ensemble: &Ensemble,
    seen: &str,
) -> Result<Membership, Error> {
    let status = lock.status.clone().unwrap_or_default();
    let Some(known) = status.ensemble.map(|ensemble| ensemble.id) else {
        let lock = claim(ctx, key, &lock, seen, None).await?;
        return among_pods(ctx, key, lock, seen).await;
    };
    if known == seen {
        return among_pods(ctx, key, lock, seen).await;
    }
    let mut strangers = strangers(&ctx.pods.of(key), &known, seen);
    if strangers.is_empty() {
        // An operator that has just begun may not have heard of them.
        strangers = self::strangers(&live(ctx, key).await?, &known, seen);
    }
    if !strangers.is_empty() {
        ctx.memories.edit(key, |memory| memory.abandoned = None);
        let message = format!(
            "the lock is in the ensemble {known}, and the operator reaches {seen} at {}{}: {} for the former. Lead the \
             operator back to it, or scale the workload to zero, and up again when Ready is True",
            ensemble.connect,
            ensemble.root,
            were_made(&strangers)
        );
        return Ok(Membership::Stranger(changed(message), LOOK));
    }
    if lock.metadata.deletion_timestamp.is_some() {
        return Ok(Membership::Abandoned);
    }
    let mut abandoned = Instant::now();
    ctx.memories.edit(key, |memory| {
        abandoned = *memory.abandoned.get_or_insert(abandoned)
    });
    let moving =
        || format!("the lock moves from the ensemble {known} to {seen}, since none of its pods is left");
    let rest = BEFORE.saturating_sub(abandoned.elapsed());
    if !rest.is_zero() {
        let message = format!("{}: pods are admitted again in some two minutes", moving());
        return Ok(Membership::Stranger(changed(message), rest));
    }
    tracing::warn!(lock = %key, from = known, to = seen, "A lock moves to another ensemble");
    let lock = claim(ctx, key, &lock, seen, Some(&changed(moving()))).await?;
    ctx.memories.edit(key, |memory| {
        memory.abandoned = None;
        memory.moved = None;
        memory.provisioned = None;
    });
    among_pods(ctx, key, lock, seen).await
}

/// A lock that is in the ensemble by its status: whether its pods are, too.
async fn among_pods(
    ctx: &Context,
    key: &LockKey,
    lock: Arc<DistributedLock>,
    seen: &str,
) -> Result<Membership, Error> {
    let pods = ctx.pods.of(key);
    if let Some(problem) = mixed(&strangers(&pods, seen, seen), seen) {
        ctx.memories.edit(key, |memory| memory.moved = None);
        return Ok(Membership::Member(lock, Some(problem), Some(LOOK)));
    }
    let is_disputed = lock
        .status
        .as_ref()
        .is_some_and(|status| dispute(status).is_some());
    let has_pods = pods.values().any(|facts| !facts.is_over);
    if !is_disputed || has_pods {
        ctx.memories.edit(key, |memory| memory.moved = None);
        return Ok(Membership::Member(lock, None, None));
    }
    let mut moved = Instant::now();
    ctx.memories
        .edit(key, |memory| moved = *memory.moved.get_or_insert(moved));
    let rest = AFTER.saturating_sub(moved.elapsed());
    if !rest.is_zero() {
        let message =
            format!("the lock is in the ensemble {seen} now: pods are admitted again within a minute");
        return Ok(Membership::Member(lock, Some(changed(message)), Some(rest)));
    }
    let problem = mixed(&strangers(&live(ctx, key).await?, seen, seen), seen);
    let again = problem.is_some().then_some(LOOK);
    Ok(Membership::Member(lock, problem, again))
}

fn mixed(strangers: &[String], seen: &str) -> Option<Problem> {
    (!strangers.is_empty()).then(|| {
        changed(format!(
            "the lock is in the ensemble {seen}, and {} for another one: delete them, since they exclude nobody here",
            were_made(strangers)
        ))
    })
}

fn changed(message: String) -> Problem {
    Problem::new(Reason::EnsembleChanged, message)
}

/// The pods that may run and were made for another ensemble than `seen`. Those of older webhooks were made for the
/// one that was `known`.
fn strangers(pods: &BTreeMap<String, PodFacts>, known: &str, seen: &str) -> Vec<String> {
    let is_stranger = |facts: &PodFacts| !facts.is_over && facts.ensemble.as_deref().unwrap_or(known) != seen;
    pods.iter()
        .filter(|(_, facts)| is_stranger(facts))
        .map(|(name, _)| name.clone())
        .collect()
}

fn were_made(pods: &[String]) -> String {
    let were = if pods.len() == 1 { "was" } else { "were" };
    format!("{} {were} made", names::first(pods, NAMED))
}

/// The pods as the API server has them at this moment.
async fn live(ctx: &Context, key: &LockKey) -> Result<BTreeMap<String, PodFacts>, Error> {
    let api: Api<PodPart> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let of_lock = ListParams::default().labels(&format!("{}={}", keys::LOCK, key.name));
    let mut pods = BTreeMap::new();
    let take = |pod: PodPart| drop(pods.insert(pod.name_any(), PodFacts::of(&pod)));
    let is_all = match parts::list(&api, of_lock, take).await {
        Ok(true) => Ok(()),
        // One of those that are not known may be a stranger.
        Ok(false) => Err(kube::Error::Service("there are too many of them".into())),
        Err(error) => Err(error),
    };
    is_all.map_err(Error::reading("the pods of a lock"))?;
    Ok(pods)
}

/// Writes down that the lock is in this ensemble.
async fn claim(
    ctx: &Context,
    key: &LockKey,
    lock: &DistributedLock,
    id: &str,
    problem: Option<&Problem>,
) -> Result<Arc<DistributedLock>, Error> {
    ctx.leadership.check()?;
    ctx.metrics.wrote("status");
    let previous = lock.status.clone().unwrap_or_default();
    // So that a claim that fails again changes nothing.
    let known = resource_outdated(&previous);
    let problem = problem.or(known.as_ref());
    let write = async |lock: &DistributedLock, problem: Option<&Problem>| {
        let previous = lock.status.clone().unwrap_or_default();
        let status = claimed(&previous, id, lock.metadata.generation, problem, Timestamp::now());
        let api: Api<LockPart> = Api::namespaced(ctx.client.clone(), &key.namespace);
        let patch = on_top_of(lock.resource_version(), &status);
        let written = api.patch_status(&key.name, &PatchParams::default(), &patch).await;
        written
            .map(DistributedLock::from)
            .map_err(Error::writing("the status"))
    };
    let lock = write(lock, problem).await?;
    let is_kept = lock
        .status
        .as_ref()
        .is_some_and(|status| status.ensemble.is_some());
    if is_kept {
        return Ok(Arc::new(lock));
    }
    if known.is_none() {
        // Where users look: conditions are kept by every release.
        let problem = Problem::new(Reason::ResourceOutdated, Error::OldResource.to_string());
        let notice = Notice::new(events::Reason::ProvisioningFailed, problem.message.as_str());
        write(&lock, Some(&problem)).await?;
        notice
            .tell(&ctx.recorder, &ctx.metrics, &lock.object_ref(&()))
            .await;
    }
    Err(Error::OldResource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ensemble: Option<&str>, is_over: bool) -> PodFacts {
        PodFacts {
            uid: "u".into(),
            role: None,
            owner: None,
            revision: None,
            is_healthy: true,
            ends: 0,
            guard: None,
            ensemble: ensemble.map(str::to_owned),
            settings: None,
            is_over,
        }
    }

    #[test]
    fn pods_of_another_ensemble_are_strangers_and_those_without_a_word_are_of_the_one_that_was_known() {
        let pods = BTreeMap::from([
            ("a".to_owned(), pod(Some("old"), false)),
            ("b".to_owned(), pod(None, false)),
            ("c".to_owned(), pod(Some("new"), false)),
            ("d".to_owned(), pod(Some("old"), true)),
        ]);
        assert_eq!(strangers(&pods, "old", "new"), ["a", "b"]);
        assert_eq!(strangers(&pods, "old", "old"), ["c"]);
        assert_eq!(strangers(&pods, "new", "new"), ["a"]);
    }

    #[test]
    fn many_pods_are_counted_and_not_named() {
        let names: Vec<_> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        assert_eq!(were_made(&names), "a, b, c and 2 more were made");
        assert_eq!(were_made(&names[..1]), "a was made");
    }
}
