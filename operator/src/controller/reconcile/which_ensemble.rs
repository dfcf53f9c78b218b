//! Part of the first step: whether the ensemble that the operator reaches is the one that the lock is in.
//!
//! All replicas of all versions agree on the ID in the status. The leader writes it on top of the version that it has seen,
//! and before anything of the lock is created in the ensemble. The ID changes when no pod of the lock is left that was
//! created for another ensemble. The operator waits both before and after the change. Meanwhile replicas with another
//! setting end, webhooks learn of the change, and pods that they have admitted become visible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use lockkeeper_crds::lock::Reason;
use lockkeeper_crds::{DistributedLock, keys};
use lockkeeper_daemon::sentence::few;

use crate::controller::LOOK;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::status::{claimed, resource_outdated};
use crate::kubernetes::objects::PodPart;
use crate::kubernetes::pods::PodFacts;
use crate::lock_key::LockKey;
use crate::problem::Problem;
use crate::zookeeper::ensemble::Ensemble;

/// How long no pod may be left in the former ensemble before the lock moves: longer than replicas with two settings run
/// beside each other in an upgrade.
const BEFORE: Duration = Duration::from_secs(30);

/// How long no pod is admitted after that: as long as the API server may be at work on a pod that a webhook has
/// admitted before it heard of the move (`--request-timeout`, by default a minute).
const AFTER: Duration = Duration::from_secs(60);

/// How a lock stands with the ensemble that the operator reaches.
pub(crate) enum Membership {
    /// It is in it, or is to be claimed for it.
    Member(Member),
    /// It is in another one, and is to be looked at again after this time.
    Stranger(Problem, Duration),
    /// As `Stranger`, and its object need not be kept any more.
    Abandoned,
}

/// A lock in the ensemble that the operator reaches.
pub(crate) struct Member {
    /// The lock; with the status of the claim, if there is one to write.
    pub(crate) lock: Arc<DistributedLock>,
    /// What has to be written before anything of the lock is made in the ensemble.
    pub(crate) claim: Option<Claim>,
    /// Why it is not ready.
    pub(crate) problem: Option<Problem>,
    /// When to look again.
    pub(crate) again: Option<Duration>,
}

/// That a lock is in an ensemble from now on, to be written into its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) id: String,
    /// The ensemble that the lock leaves.
    pub(crate) from: Option<String>,
    /// The status says already that the resource does not keep the ID.
    pub(crate) is_known_to_fail: bool,
}

/// Finds out how a lock stands with `ensemble`. It is to be claimed for it if it is nowhere else.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn membership(
    ctx: &Context,
    key: &LockKey,
    lock: Arc<DistributedLock>,
    ensemble: &Ensemble,
    seen: &str,
) -> Result<Membership, Error> {
    let status = lock.status.clone().unwrap_or_default();
    let Some(known) = status.ensemble.map(|ensemble| ensemble.id) else {
        let (lock, claim) = claim(&lock, seen, None, None);
        return among_pods(ctx, key, lock, Some(claim), seen).await;
    };
    if known == seen {
        ctx.memories.edit(key, |memory| memory.moving.stay());
        return among_pods(ctx, key, lock, None, seen).await;
    }
    let mut strangers = strangers(&ctx.pods.of(key), &known, seen);
    if strangers.is_empty() {
        // An operator that has just started may not know them yet.
        strangers = self::strangers(&live(ctx, key).await?, &known, seen);
    }
    if !strangers.is_empty() {
        ctx.memories.edit(key, |memory| memory.moving.stay());
        let message = format!(
            "the lock is in the ensemble {known}, and the operator reaches {seen} at {}{}: {} for the former. Point the \
             operator to it again, or scale the workload to zero, and up again when Ready is True",
            ensemble.connect,
            ensemble.root,
            were_made(&strangers)
        );
        return Ok(Membership::Stranger(changed(message), LOOK));
    }
    if lock.metadata.deletion_timestamp.is_some() {
        return Ok(Membership::Abandoned);
    }
    let left = ctx.memories.edit(key, |memory| memory.moving.leave());
    let moving =
        || format!("the lock moves from the ensemble {known} to {seen}, since none of its pods is left");
    let rest = BEFORE.saturating_sub(left);
    if !rest.is_zero() {
        let message = format!("{}: pods are admitted again in some two minutes", moving());
        return Ok(Membership::Stranger(changed(message), rest));
    }
    let problem = changed(moving());
    let (lock, claim) = claim(&lock, seen, Some(&problem), Some(known.clone()));
    among_pods(ctx, key, lock, Some(claim), seen).await
}

/// The lock as it is once it is claimed, and what is to be written for that.
fn claim(
    lock: &DistributedLock,
    id: &str,
    problem: Option<&Problem>,
    from: Option<String>,
) -> (Arc<DistributedLock>, Claim) {
    let previous = lock.status.clone().unwrap_or_default();
    // Then a claim that fails again changes nothing.
    let known = resource_outdated(&previous);
    let problem = problem.or(known.as_ref());
    let status = claimed(&previous, id, lock.metadata.generation, problem, Timestamp::now());
    let claim = Claim {
        id: id.to_owned(),
        from,
        is_known_to_fail: known.is_some(),
    };
    let lock = DistributedLock {
        status: Some(status),
        ..lock.clone()
    };
    (Arc::new(lock), claim)
}

/// A lock that is in the ensemble by its status: whether its pods are, too.
async fn among_pods(
    ctx: &Context,
    key: &LockKey,
    lock: Arc<DistributedLock>,
    claim: Option<Claim>,
    seen: &str,
) -> Result<Membership, Error> {
    let is_written = claim.is_none();
    let member = |problem, again| {
        Membership::Member(Member {
            lock: Arc::clone(&lock),
            claim,
            problem,
            again,
        })
    };
    let pods = ctx.pods.of(key);
    if let Some(problem) = mixed(&strangers(&pods, seen, seen), seen) {
        ctx.memories.edit(key, |memory| memory.moving.settle());
        return Ok(member(Some(problem), Some(LOOK)));
    }
    let is_disputed = lock
        .status
        .as_ref()
        .is_some_and(|status| status.dispute().is_some());
    let has_pods = pods.values().any(|facts| !facts.is_over);
    if !is_disputed || has_pods {
        ctx.memories.edit(key, |memory| memory.moving.settle());
        return Ok(member(None, None));
    }
    // The minute begins once the status says so: before the claim is written all of it is to come.
    let arrived = match is_written {
        true => ctx.memories.edit(key, |memory| memory.moving.arrive()),
        false => Duration::ZERO,
    };
    let rest = AFTER.saturating_sub(arrived);
    if !rest.is_zero() {
        let message =
            format!("the lock is in the ensemble {seen} now: pods are admitted again within a minute");
        return Ok(member(Some(changed(message)), Some(rest)));
    }
    let problem = mixed(&strangers(&live(ctx, key).await?, seen, seen), seen);
    let again = problem.is_some().then_some(LOOK);
    Ok(member(problem, again))
}

fn mixed(strangers: &[String], seen: &str) -> Option<Problem> {
    (!strangers.is_empty()).then(|| {
        changed(format!(
            "the lock is in the ensemble {seen}, and {} for another one: delete them, in this ensemble they do \
             not keep other pods from running",
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
    format!("{} {were} made", few(pods))
}

/// The pods, read from the API server now.
async fn live(ctx: &Context, key: &LockKey) -> Result<BTreeMap<String, PodFacts>, Error> {
    let of_lock = ListParams::default().labels(&format!("{}={}", keys::LOCK, key.name));
    let mut pods = BTreeMap::new();
    let take = |pod: PodPart| drop(pods.insert(pod.name_any(), PodFacts::of(&pod)));
    let is_all = match ctx.reader.list(&key.namespace, of_lock, take).await {
        Ok(true) => Ok(()),
        // One of the unknown pods may be a stranger.
        Ok(false) => Err(kube::Error::Service("there are too many of them".into())),
        Err(error) => Err(error),
    };
    is_all.map_err(Error::reading("the pods of a lock"))?;
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ensemble: Option<&str>, is_over: bool) -> PodFacts {
        PodFacts {
            uid: "u".into(),
            created: None,
            node: None,
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
