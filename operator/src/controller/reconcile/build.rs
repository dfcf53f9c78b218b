//! Third step: what is to be done, and the status once it is done. Pure.
//!
//! The status says what this replica knows before the plan is carried out: what came of former plans is in its memory. If
//! [`apply`](super::apply) learns something that the status does not say, the lock is resolved and planned once more before
//! a status is written. So every status that is written comes from here, but for its history: [`report`](super::report) asks
//! how the former holders ended when it writes.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lockkeeper_crds::keys::{FINALIZER, HANDOFF};
use lockkeeper_crds::lock::{DeletionPolicy, DistributedLockStatus, Reason, Trial};
use lockkeeper_lock::{Agreement, Participant, YieldRequest};

use super::readiness::readiness;
use super::resolve::{Resolved, mode};
use super::situation::Situation;
use super::validate::Valid;
use crate::controller::error::Error;
use crate::controller::rollout::{self, Decision, trial};
use crate::controller::status::{self, Observation, claimed, holds};
use crate::identity::Identity;
use crate::kubernetes::pods::Role;
use crate::node_fencing::Suspect;
use crate::problem::Problem;

/// Contenders of machines that are off that are removed in one go, with two requests each, one after the other: a matter of
/// a second, as with the children of a lock root that goes.
pub(crate) const MOST_DEAD: usize = 250;

/// What is to be done for a lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// That the lock is in the ensemble, where the status does not say so yet. It is written before all else.
    pub(crate) claim: Option<Claiming>,
    pub(crate) finalizer: Finalizer,
    pub(crate) nodes: Nodes,
    /// Role labels that are wrong.
    pub(crate) roles: Vec<RoleChange>,
    /// The first contenders that go, because their machines are known to be off: [`MOST_DEAD`] of them, if there are more.
    pub(crate) dead: Vec<Suspect>,
    /// Whether contenders are asked to step down.
    pub(crate) handoff: Handoff,
    /// The status once all of this is done.
    pub(crate) status: DistributedLockStatus,
}

/// That a lock is in an ensemble from now on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claiming {
    /// The ID of the ensemble.
    pub(crate) id: String,
    /// The ensemble that the lock leaves.
    pub(crate) from: Option<String>,
    /// The status that says so.
    pub(crate) status: DistributedLockStatus,
    /// What the status says where the resource is of an older release and does not keep the ID; nothing if it says that
    /// already.
    pub(crate) if_not_kept: Option<DistributedLockStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finalizer {
    /// It is as it should be.
    Keep,
    /// It is missing.
    Add,
    /// The object may go, once the nodes are as they should be.
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// They have to be there.
    Ensure {
        /// Whose rights they have to give.
        identities: Vec<Identity>,
        /// What the contenders have to agree on.
        agreement: Agreement,
    },
    Remove,
    Leave,
}

/// A role label that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleChange {
    pub(crate) pod: String,
    /// Its UID, so that no other pod of this name gets the label.
    pub(crate) uid: String,
    /// What it should be.
    pub(crate) role: Role,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handoff {
    None,
    /// Because of a rollout, and what is to be remembered of it.
    Rollout(Request, Trial),
    /// Because of a rollout, after this time.
    Later(Duration),
    Asked(Request),
    /// A user asked for a handoff that is not possible.
    Refused(String),
}

/// A wish that contenders step down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// For the control node.
    pub(crate) request: YieldRequest,
    /// For users: which pod holds, and which pod is to hold.
    pub(crate) note: String,
}

/// What is to be done, and the status once it is done.
pub(crate) fn build(resolved: &Resolved, valid: &Result<Valid, Problem>, now: Timestamp) -> Plan {
    let is_crowd_removable = resolved.is_deleted() && resolved.are_pods_known && !resolved.has_pods();
    let (finalizer, nodes) = match &resolved.situation {
        Situation::Followed { .. } => provision(resolved, valid.as_ref().ok()),
        // The contenders are not known. The removal of the nodes checks for them, and is tried when no pod of the
        // lock runs.
        Situation::Crowded { .. } if is_crowd_removable => provision(resolved, None),
        // While a pod runs the object stays: without it, another one would be made for the next pod, in the operator's
        // ensemble, beside the pods that run.
        Situation::OutOfReach {
            is_orphaned: true, ..
        } if resolved.is_deleted() && !resolved.has_pods() => (Finalizer::Remove, Nodes::Leave),
        Situation::Abandoned => (Finalizer::Remove, Nodes::Leave),
        Situation::Crowded { .. } | Situation::OutOfReach { .. } => (Finalizer::Keep, Nodes::Leave),
    };
    let acts = match &resolved.situation {
        Situation::Followed { .. } => true,
        Situation::Crowded { .. } => is_crowd_removable,
        Situation::OutOfReach { .. } | Situation::Abandoned => false,
    };
    let (roles, handoff) = match acts {
        true => (roles(resolved), handoff(resolved)),
        false => (Vec::new(), Handoff::None),
    };
    let dead = resolved.suspects.iter().filter(|suspect| suspect.is_dead());
    let status = status(resolved, valid, &handoff, now);
    Plan {
        claim: claiming(resolved, now),
        finalizer,
        nodes,
        roles,
        dead: dead.take(MOST_DEAD).cloned().collect(),
        handoff,
        status,
    }
}

fn claiming(resolved: &Resolved, now: Timestamp) -> Option<Claiming> {
    let claim = resolved.claim.as_ref()?;
    let status = resolved.lock.status.clone().unwrap_or_default();
    // Users look at conditions, and every release keeps them.
    let if_not_kept = (!claim.is_known_to_fail).then(|| {
        let problem = Problem::new(Reason::ResourceOutdated, Error::OldResource.to_string());
        let generation = resolved.lock.metadata.generation;
        claimed(&status, &claim.id, generation, Some(&problem), now)
    });
    Some(Claiming {
        id: claim.id.clone(),
        from: claim.from.clone(),
        status,
        if_not_kept,
    })
}

/// What becomes of the finalizer and of the nodes while the ensemble can be reached.
fn provision(resolved: &Resolved, valid: Option<&Valid>) -> (Finalizer, Nodes) {
    let lock = &resolved.lock;
    let has_finalizer = lock.finalizers().iter().any(|name| name == FINALIZER);
    let is_in_use = !resolved.participants.is_empty();
    let ensure = match valid {
        Some(valid) => Nodes::Ensure {
            identities: valid.identities.clone(),
            agreement: Agreement::of(mode(&lock.spec)),
        },
        None => Nodes::Leave,
    };
    match (resolved.is_deleted(), has_finalizer, is_in_use) {
        (false, true, _) => (Finalizer::Keep, ensure),
        (false, false, _) => (Finalizer::Add, ensure),
        (true, false, _) | (true, true, true) => (Finalizer::Keep, Nodes::Leave),
        (true, true, false) => match lock.spec.deletion_policy {
            DeletionPolicy::Delete => (Finalizer::Remove, Nodes::Remove),
            DeletionPolicy::Retain => (Finalizer::Remove, Nodes::Leave),
        },
    }
}

/// The status once all that is planned is done. `handoff` is what is planned.
fn status(
    resolved: &Resolved,
    valid: &Result<Valid, Problem>,
    handoff: &Handoff,
    now: Timestamp,
) -> DistributedLockStatus {
    let previous = resolved.lock.status.clone().unwrap_or_default();
    let generation = resolved.lock.metadata.generation;
    let status = match &resolved.situation {
        Situation::Crowded { problem, .. } | Situation::OutOfReach { problem, .. } => {
            status::out_of_reach(&previous, generation, problem, now)
        }
        Situation::Abandoned => previous,
        Situation::Followed { .. } => {
            let begun = match handoff {
                Handoff::Rollout(_, trial) => Some(trial),
                Handoff::None | Handoff::Later(_) | Handoff::Asked(_) | Handoff::Refused(_) => None,
            };
            let seen = Observation {
                generation,
                queue: &resolved.queue,
                participants: &resolved.participants,
                pods: &resolved.pods,
                readiness: readiness(resolved, valid.as_ref().err()),
                trial: begun.or(resolved.trial.as_ref()).cloned(),
            };
            status::observed(&previous, &seen, now)
        }
    };
    DistributedLockStatus {
        fenced: resolved.memory.removals.last().cloned().or(status.fenced),
        ..status
    }
}

/// A pod is active from when its contender says that it holds until the contender is gone: the end of
/// a session ends the role, whatever the pod looks like.
fn roles(resolved: &Resolved) -> Vec<RoleChange> {
    let is_active = |name: &str, uid: &str| {
        resolved.participants.iter().any(|one| {
            let pod = one.data.pod.as_ref();
            one.data.is_held() && pod.is_some_and(|pod| pod.name == name && pod.uid == uid)
        })
    };
    resolved
        .pods
        .iter()
        .filter_map(|(name, facts)| {
            let role = if is_active(name, &facts.uid) {
                Role::Active
            } else {
                Role::Standby
            };
            (facts.role != Some(role)).then(|| RoleChange {
                pod: name.clone(),
                uid: facts.uid.clone(),
                role,
            })
        })
        .collect()
}

fn handoff(resolved: &Resolved) -> Handoff {
    if let Some(wanted) = resolved.lock.annotations().get(HANDOFF) {
        return match asked(&resolved.participants, wanted) {
            Ok(request) => Handoff::Asked(request),
            Err(refusal) => Handoff::Refused(refusal),
        };
    }
    let Some(rollout) = &resolved.rollout else {
        return Handoff::None;
    };
    match rollout::decide(&rollout.queue, &rollout.workload) {
        Decision::Stay => Handoff::None,
        Decision::Yield { successor, .. } if has_failed(resolved, &successor.revision) => Handoff::None,
        Decision::Yield { .. } if !rollout.rest.is_zero() => Handoff::Later(rollout.rest),
        Decision::Yield {
            contenders,
            successor,
        } => Handoff::Rollout(
            Request {
                note: format!(
                    "asked to hand over to {}, a pod of the current revision",
                    successor.pod
                ),
                request: YieldRequest {
                    id: format!("rollout to {}", successor.pod),
                    contenders,
                },
            },
            trial::begun(&successor),
        ),
    }
}

/// Whether this revision got the lock before, and failed under it.
fn has_failed(resolved: &Resolved, revision: &str) -> bool {
    let mut trial = resolved.trial.iter();
    trial.any(|trial| trial.has_failed && trial.revision == revision)
}

/// The holder, and all contenders before the pod that is to hold.
fn asked(participants: &[Participant], wanted: &str) -> Result<Request, String> {
    let name = |one: &Participant| one.data.pod.as_ref().map(|pod| pod.name.clone());
    let holder = participants
        .iter()
        .find(|one| holds(one))
        .ok_or("no pod holds the lock")?;
    let is_wanted = |one: &&Participant| wanted.is_empty() || name(one).as_deref() == Some(wanted);
    if !wanted.is_empty() && is_wanted(&holder) {
        return Err(format!("{wanted} holds the lock already"));
    }
    let successor = participants
        .iter()
        .find(|one| !holds(one) && is_wanted(one))
        .ok_or_else(|| match wanted {
            "" => "no pod waits for the lock".to_owned(),
            pod => format!("{pod} does not wait for the lock"),
        })?;
    let before = participants
        .iter()
        .take_while(|one| one.name != successor.name)
        .filter(|one| !holds(one));
    let shown = name(successor).unwrap_or_else(|| successor.name.clone());
    Ok(Request {
        note: format!("asked by a user to hand over to {shown}"),
        request: YieldRequest {
            id: format!("asked for {shown}"),
            contenders: std::iter::once(holder)
                .chain(before)
                .map(|one| one.name.clone())
                .collect(),
        },
    })
}

#[cfg(test)]
mod tests;
