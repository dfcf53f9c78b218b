//! First step: everything that has to be known is read. Nothing is written before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::lock::{DistributedLockSpec, Handoff, LockMode, Reason, Trial};
use lockkeeper_lock::{Mode, Participant};

use super::roots;
use super::situation::{Situation, Ticks, standing};
use super::which_ensemble::{self, Claim, Membership};
use super::workload::workload;
use crate::controller::LOOK;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::memory::Memory;
use crate::controller::rollout::{self, Candidate, Rollout, trial};
use crate::controller::status::holds;
use crate::controller::writer::LeasedWay;
use crate::identity::namespace_secret::{Identities, UnusableSecret};
use crate::kubernetes::pods::{Owner, PodFacts};
use crate::lock_key::LockKey;
use crate::node_fencing::Suspect;
use crate::problem::Problem;
use crate::zookeeper::foreign::{Source, Standing};
use crate::zookeeper::queues::picture::Queue;
use crate::zookeeper::reachability::Reachability;

/// Least time between two handoffs of rollouts of one lock: longer than a pod needs to stop and the next one to begin, so
/// that no lock goes through a workload in one rush.
const YIELD_PAUSE: Duration = Duration::from_secs(10);

/// How long the operator looks for the workload of a lock. Users of its namespace decide how much there is to read.
const LOOKUP: Duration = Duration::from_secs(10);

/// What is known of a lock. Nothing changes it after this step.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) key: LockKey,
    /// The object; with the status of the claim, if there is one to write.
    pub(crate) lock: Arc<DistributedLock>,
    pub(crate) situation: Situation,
    /// What has to be written first: that the lock is in the ensemble.
    pub(crate) claim: Option<Claim>,
    /// What this replica remembers of the lock.
    pub(crate) memory: Memory,
    /// The queue; empty if it is not known.
    pub(crate) queue: Queue,
    /// The contenders in the order of the queue.
    pub(crate) participants: Vec<Participant>,
    pub(crate) pods: BTreeMap<String, PodFacts>,
    pub(crate) are_pods_known: bool,
    pub(crate) identities: Option<Result<Identities, UnusableSecret>>,
    pub(crate) rollout: Option<Rollout>,
    /// The contenders on nodes that are said to be out of service.
    pub(crate) suspects: Vec<Suspect>,
    /// How the last handoff of a rollout turned out, as long as that counts.
    pub(crate) trial: Option<Trial>,
    /// When to look again, because something changes without an event.
    pub(crate) again: Option<Duration>,
}

// === impl Resolved ===

impl Resolved {
    /// Whether a pod of the lock may run.
    pub(crate) fn has_pods(&self) -> bool {
        self.pods.values().any(|facts| !facts.is_over)
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.lock.metadata.deletion_timestamp.is_some()
    }
}

/// Reads what is known of a lock. `None` as long as it is not known how its ensemble stands, and while the namespace of a
/// lock that stays gets its identity: the lock comes again then. `own` says how the operator stands with its own
/// ensemble. Workloads are only read where revisions differ.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn resolve(
    ctx: &Context,
    key: LockKey,
    mut lock: Arc<DistributedLock>,
    own: Reachability,
) -> Result<Option<Resolved>, Error> {
    let identities = ctx.secrets.settled(&key.namespace);
    if identities.is_some() {
        ctx.memories.edit(&key, |memory| memory.identify(lock.uid()));
    } else if matches!(own, Reachability::Up(_)) && lock.metadata.deletion_timestamp.is_none() {
        return Ok(None);
    }
    let mut queue = Queue::default();
    let (mut claim, mut again) = (None, None);
    let out_of_reach = |problem, is_orphaned| Situation::OutOfReach { problem, is_orphaned };
    let situation = match standing(ctx, &lock, own) {
        // The lock is reconciled again when that is known.
        Standing::Unsure => return Ok(None),
        Standing::Out(problem) => {
            if matches!(Source::of(&lock, &ctx.own.connect), Ok(None)) {
                queue = ctx.own.view.queue(&key);
            }
            out_of_reach(problem, false)
        }
        Standing::Orphaned(problem) => out_of_reach(problem, true),
        Standing::Up {
            ensemble,
            way,
            problem,
        } => {
            let way = LeasedWay::new(way);
            // Known since before the connection was said to be up.
            let Some(id) = ensemble.view.id() else {
                return Ok(None);
            };
            match which_ensemble::membership(ctx, &key, Arc::clone(&lock), &ensemble, &id.to_string()).await?
            {
                Membership::Stranger(problem, rest) => {
                    again = Some(rest);
                    out_of_reach(problem, false)
                }
                Membership::Abandoned => Situation::Abandoned,
                Membership::Member(member) => {
                    (lock, claim, again) = (member.lock, member.claim, member.again);
                    queue = ensemble.view.queue(&key);
                    match queue.excess() {
                        Some(excess) => {
                            let problem = Problem::new(Reason::TooManyContenders, excess.to_string());
                            queue = Queue::default();
                            again = Some(LOOK);
                            Situation::Crowded { way, problem }
                        }
                        None => {
                            let own = ensemble.is_own.then_some(&ensemble.view);
                            let too_many = own.and_then(|view| roots::too_many(view, &key, &queue));
                            if too_many.is_some() {
                                again = Some(LOOK);
                            }
                            Situation::Followed {
                                way,
                                is_own: ensemble.is_own,
                                ticks: Ticks {
                                    stated: ctx.tick_time,
                                    told: ensemble.view.tick_time(),
                                },
                                problem: problem.or(member.problem).or(too_many),
                            }
                        }
                    }
                }
            }
        }
    };
    let participants = queue.participants(mode(&lock.spec));
    let pods = ctx.pods.of(&key);
    let (rollout, is_late) = match lock.spec.handoff {
        // A claim is written first, soon after its pods were read.
        _ if claim.is_some() => (None, true),
        Handoff::Never => (None, false),
        Handoff::OnRollout => in_time(&key, rollout(ctx, &key, &participants, &pods)).await?,
    };
    let trial = match lock.spec.handoff {
        Handoff::Never => None,
        Handoff::OnRollout => tried(ctx, &key, &lock, &participants, &pods, rollout.as_ref()),
    };
    let (suspects, is_unread) = match (&ctx.fencing, &situation) {
        (Some((fencing, nodes)), Situation::Followed { .. }) => {
            fencing.suspects(nodes, &key, &participants).await
        }
        _ => (Vec::new(), false),
    };
    if is_unread {
        again = again.into_iter().chain([LOOK]).min();
    }
    // No event comes when a user resumes a rollout, or moves its partition.
    if matches!(situation, Situation::Followed { .. }) && (is_late || rollout.is_some()) {
        again = again.into_iter().chain([LOOK]).min();
    }
    Ok(Some(Resolved {
        suspects,
        trial,
        identities,
        are_pods_known: *ctx.pods.ready().borrow(),
        memory: ctx.memories.of(&key),
        key,
        lock,
        situation,
        claim,
        queue,
        participants,
        pods,
        rollout,
        again,
    }))
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
    rollout: Option<&Rollout>,
) -> Option<Trial> {
    let written = lock.status.as_ref().and_then(|status| status.trial.clone());
    let trials = ctx.memories.of(key).trials;
    // Until all pods are known, a revision may have pods that were not seen yet.
    if !*ctx.pods.ready().borrow() {
        return trials.requested().cloned().or(written);
    }
    let mut known = trials.requested().into_iter().chain(&written);
    let judged = known.find_map(|trial| trial::judged(trial, participants, pods, rollout));
    let holder = judged
        .as_ref()
        .and_then(|trial| trial::holder(trial, participants, pods));
    let is_over = ctx
        .memories
        .edit(key, |memory| memory.trials.see(written.as_ref(), holder));
    judged.filter(|_| !is_over)
}

/// The mode of a lock for its queue.
pub(crate) fn mode(spec: &DistributedLockSpec) -> Mode {
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
) -> Result<Option<Rollout>, Error> {
    let holding = participants.iter().filter(|one| holds(one));
    for owner in holding.filter_map(|one| facts(one, pods)?.owner.as_ref()) {
        let queue = candidates(participants, pods, owner);
        if rollout::is_mixed(&queue)
            && let Some(workload) = workload(&ctx.reader, &key.namespace, owner).await?
        {
            let rest = ctx.memories.of(key).yielded.rest(YIELD_PAUSE);
            return Ok(Some(Rollout {
                queue,
                workload,
                rest,
            }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

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
