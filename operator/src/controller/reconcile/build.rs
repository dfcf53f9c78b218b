//! Third step: what is to be done, and the status once it is done. Pure.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lockkeeper_crds::keys::{FINALIZER, HANDOFF};
use lockkeeper_crds::lock::{DeletionPolicy, DistributedLockStatus, Trial};
use lockkeeper_lock::{Participant, YieldRequest};

use super::readiness::readiness;
use super::resolve::Resolved;
use super::situation::Situation;
use super::validate::Valid;
use crate::controller::rollout::{self, Decision, trial};
use crate::controller::status::{self, Observation, holds};
use crate::fencing::Suspect;
use crate::kubernetes::pods::Role;
use crate::problem::Problem;

/// Contenders of machines that are off that are removed in one go, with two requests each, one after the other: a matter of
/// a second, as with the children of a lock root that goes.
pub(crate) const MOST_DEAD: usize = 250;

/// What is to be done for a lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) finalizer: Finalizer,
    pub(crate) nodes: Nodes,
    /// Role labels that are wrong.
    pub(crate) roles: Vec<RoleChange>,
    /// The first contenders that go, because their machines are known to be off: [`MOST_DEAD`] of them, if there are more.
    pub(crate) dead: Vec<Suspect>,
    /// Whether contenders are asked to step down.
    pub(crate) handoff: Handoff,
    /// The status, if all of this succeeds.
    pub(crate) status: DistributedLockStatus,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// They have to be there, with the right ACLs.
    Ensure,
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
    let status = status(resolved, valid, now);
    let is_crowd_removable = resolved.is_deleted() && resolved.are_pods_known && !resolved.has_pods();
    let (finalizer, nodes) = match &resolved.situation {
        Situation::Followed { .. } => provision(resolved, valid.is_ok()),
        // The contenders are not known. The removal of the nodes checks for them, and is tried when no pod of the
        // lock runs.
        Situation::Crowded { .. } if is_crowd_removable => provision(resolved, false),
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
    Plan {
        finalizer,
        nodes,
        roles,
        dead: dead.take(MOST_DEAD).cloned().collect(),
        handoff,
        status,
    }
}

/// What becomes of the finalizer and of the nodes while the ensemble can be reached.
fn provision(resolved: &Resolved, is_valid: bool) -> (Finalizer, Nodes) {
    let lock = &resolved.lock;
    let has_finalizer = lock.finalizers().iter().any(|name| name == FINALIZER);
    let is_in_use = !resolved.participants.is_empty();
    let ensure = if is_valid { Nodes::Ensure } else { Nodes::Leave };
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

/// The status, if all that is planned succeeds.
fn status(resolved: &Resolved, valid: &Result<Valid, Problem>, now: Timestamp) -> DistributedLockStatus {
    let previous = resolved.lock.status.clone().unwrap_or_default();
    let generation = resolved.lock.metadata.generation;
    match (&resolved.situation, valid) {
        (Situation::Crowded { problem, .. } | Situation::OutOfReach { problem, .. }, _) => {
            status::out_of_reach(&previous, generation, problem, now)
        }
        (Situation::Abandoned, _) => previous,
        (Situation::Followed { .. }, valid) => {
            let seen = Observation {
                generation,
                queue: &resolved.queue,
                participants: &resolved.participants,
                pods: &resolved.pods,
                readiness: readiness(resolved, valid.as_ref().err().cloned()),
                trial: resolved.trial.clone(),
            };
            status::observed(&previous, &seen, now)
        }
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
    let Some((queue, workload)) = &resolved.rollout else {
        return Handoff::None;
    };
    match rollout::decide(queue, workload) {
        Decision::Stay => Handoff::None,
        Decision::Yield { successor, .. } if has_failed(resolved, &successor.revision) => Handoff::None,
        Decision::Yield {
            contenders,
            successor,
        } => Handoff::Rollout(
            Request {
                note: format!(
                    "asked to hand over to {}, which is of the current revision",
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
        note: format!("asked to hand over to {shown}, as a user wishes"),
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
