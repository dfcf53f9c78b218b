//! Third step: from what is known to what is to be done. Pure.

use kube::ResourceExt;
use lockkeeper_crds::lock::{DeletionPolicy, Trial};
use lockkeeper_lock::{Participant, YieldRequest};

use super::resolve::Resolved;
use crate::pods::Role;
use crate::rollout::{self, Decision, trial};
use crate::status::holds;

/// Keeps an object until nobody is in its queue and its nodes are gone.
pub const FINALIZER: &str = "lockkeeper.io/queue";

/// Annotation by which a user asks for a handoff: name of a pod that waits, or empty for the next in
/// the queue. The operator removes it when it has asked the holder, or refused.
pub const HANDOFF: &str = "lockkeeper.io/handoff";

/// What is to be done for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The finalizer.
    pub finalizer: Finalizer,
    /// The nodes in ZooKeeper.
    pub nodes: Nodes,
    /// Role labels that are wrong.
    pub roles: Vec<RoleChange>,
    /// Whether somebody is asked to step down.
    pub handoff: Handoff,
}

/// What becomes of the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    /// It is as it should be.
    Keep,
    /// It is missing.
    Add,
    /// The object may go, once the nodes are as they should be.
    Remove,
}

/// What becomes of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// They have to be there, with the right ACLs.
    Ensure,
    /// They go.
    Remove,
    /// They stay as they are.
    Leave,
}

/// A role label that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleChange {
    /// Name of the pod.
    pub pod: String,
    /// Its UID, so that no other pod of this name gets the label.
    pub uid: String,
    /// What it should be.
    pub role: Role,
}

/// A change of hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handoff {
    /// None.
    None,
    /// Because of a rollout, and what is to be remembered of it.
    Rollout(Request, Trial),
    /// Because a user asked.
    Asked(Request),
    /// A user asked for what cannot be.
    Refused(String),
}

/// A wish that contenders step down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// For the control node.
    pub request: YieldRequest,
    /// For people: who holds, and who is to hold.
    pub note: String,
}

/// What is to be done.
pub fn build(resolved: &Resolved) -> Plan {
    let lock = &resolved.lock;
    let is_deleted = lock.metadata.deletion_timestamp.is_some();
    let has_finalizer = lock.finalizers().iter().any(|name| name == FINALIZER);
    let is_in_use = !resolved.participants.is_empty();
    let (finalizer, nodes) = match (is_deleted, has_finalizer, is_in_use) {
        (false, true, _) => (Finalizer::Keep, Nodes::Ensure),
        (false, false, _) => (Finalizer::Add, Nodes::Ensure),
        (true, false, _) | (true, true, true) => (Finalizer::Keep, Nodes::Leave),
        (true, true, false) => match lock.spec.deletion_policy {
            DeletionPolicy::Delete => (Finalizer::Remove, Nodes::Remove),
            DeletionPolicy::Retain => (Finalizer::Remove, Nodes::Leave),
        },
    };
    Plan {
        finalizer,
        nodes,
        roles: roles(resolved),
        handoff: handoff(resolved),
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

/// The holder, and everybody before the pod that is to hold.
fn asked(participants: &[Participant], wanted: &str) -> Result<Request, String> {
    let name = |one: &Participant| one.data.pod.as_ref().map(|pod| pod.name.clone());
    let holder = participants
        .iter()
        .find(|one| holds(one))
        .ok_or("nobody holds the lock")?;
    let is_wanted = |one: &&Participant| wanted.is_empty() || name(one).as_deref() == Some(wanted);
    if !wanted.is_empty() && is_wanted(&holder) {
        return Err(format!("{wanted} holds the lock already"));
    }
    let successor = participants
        .iter()
        .find(|one| !holds(one) && is_wanted(one))
        .ok_or_else(|| match wanted {
            "" => "nobody waits for the lock".to_owned(),
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
