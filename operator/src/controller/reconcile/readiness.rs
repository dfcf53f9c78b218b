//! Whether a lock is ready, for its status. Pure.

use lockkeeper_crds::lock::Reason;
use lockkeeper_crds::settings::word_of;
use lockkeeper_lock::{Agreement, is_contender};

use super::resolve::{Resolved, mode};
use crate::controller::memory::Disorder;
use crate::controller::rollout::trial;
use crate::controller::status::{self, Readiness};
use crate::problem::Problem;
use crate::zookeeper::queues::picture::{Contender, Queue};

/// Whether the lock is ready. `not_ready` is why its settings cannot be in force.
pub(super) fn readiness(resolved: &Resolved, not_ready: Option<&Problem>) -> Readiness {
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
                "being deleted: waits until the lock is no longer held by {}",
                pods.join(", ")
            ),
        };
        return Readiness::NotReady(Reason::Deleting, message);
    }
    let not_ready = not_ready.cloned().or_else(|| disorder(resolved));
    match not_ready.or_else(|| stranger(resolved)) {
        None => match (held_back(resolved), outdated(resolved)) {
            (Some(message), _) => Readiness::HeldBack(message),
            (None, pods) if pods.is_empty() => Readiness::Ready,
            (None, pods) => Readiness::Outdated(pods),
        },
        Some(Problem { reason, message }) => Readiness::NotReady(reason, message),
    }
}

/// What keeps the nodes of a lock that has no holder. A contender without a session stays when its client ends.
fn waits_for(queue: &Queue) -> String {
    let in_queue = queue
        .contenders()
        .filter(|node| node.is_ephemeral || is_contender(&node.name));
    match in_queue.min_by_key(|node| &node.name) {
        Some(node) if node.is_ephemeral => {
            format!("being deleted: waits until {} has left the queue", node.name)
        }
        Some(node) => format!(
            "being deleted: waits until {} has left the queue. The node belongs to no session: if no client waits with \
             it, delete it",
            node.name
        ),
        None => "being deleted: its nodes in ZooKeeper are being removed".to_owned(),
    }
}

/// What keeps the nodes from being in order, as of the last look at them.
fn disorder(resolved: &Resolved) -> Option<Problem> {
    match resolved.memory.nodes.disorder()? {
        Disorder::Agreed(before) => {
            let wanted = Agreement::of(mode(&resolved.lock.spec));
            Some(pending(*before, wanted, &resolved.queue))
        }
        Disorder::Refused(why) => Some(Problem::new(Reason::ProvisioningFailed, why.as_str())),
    }
}

/// What has to happen before another setting of the lock is in force.
fn pending(before: Option<Agreement>, wanted: Agreement, queue: &Queue) -> Problem {
    let before = before.map_or_else(|| "something else".to_owned(), |before| before.to_string());
    let hidden = queue
        .contenders()
        .filter(|child| child.is_unread())
        .map(|child| &*child.name)
        .min();
    let is_empty = queue.excess().is_none() && queue.contenders().all(Contender::is_unread);
    let sentence = if is_empty {
        let what = hidden.map_or_else(|| "its children".to_owned(), |child| format!("the node {child}"));
        format!(
            "the contenders agreed on {before}; {wanted} comes into force when the lock root has no children. The operator \
             may not read {what}: delete it in ZooKeeper"
        )
    } else {
        in_the_queue(&before, wanted, queue, hidden)
    };
    Problem::new(Reason::AgreementPending, sentence)
}

fn in_the_queue(before: &str, wanted: Agreement, queue: &Queue, hidden: Option<&str>) -> String {
    // ZooKeeper does not distinguish contenders from other children.
    let besides = match queue.bystanders().min().or(hidden) {
        Some(child) => format!(
            "; and delete the node {child} below the lock root, which is no place in the queue and keeps the root \
             from being made anew"
        ),
        None => String::new(),
    };
    format!(
        "the contenders in the queue have agreed on {before}; {wanted} comes into force when the queue is empty: scale the \
         workload to zero, or restart its pods all at once{besides}"
    )
}

/// Why a rollout is held back, if one is.
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
        "the node {stranger} below the lock root belongs to a client of an unknown kind, so its name does not show its \
         place in the queue, and no keeper holds the lock beside it: stop that client, or give it a lock root of its own"
    );
    Some(Problem::new(Reason::UnknownContender, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_lock::FencingToken;

    #[test]
    fn a_child_that_keeps_another_setting_from_coming_into_force_is_named() {
        let [before, wanted] =
            [lockkeeper_lock::Mode::Exclusive, lockkeeper_lock::Mode::Write].map(Agreement::of);
        let of = |name: &str, is_ephemeral| {
            let child = Contender::read(name, FencingToken(1), is_ephemeral, b"");
            pending(Some(before), wanted, &Queue::of(true, [child])).message
        };
        let sentence = of("litter", false);
        assert!(
            sentence.contains("delete the node litter below the lock root"),
            "{sentence}"
        );
        for sentence in [of("_c_x-lock-0000000001", true), of("stranger", true)] {
            assert!(sentence.ends_with("restart its pods all at once"), "{sentence}");
        }
    }

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
            forgotten.contains("belongs to no session: if no client waits with it, delete it"),
            "{forgotten}"
        );
        for bystanders in [&[][..], &[("a-note", false)]] {
            assert!(of(bystanders).ends_with("its nodes in ZooKeeper are being removed"));
        }
    }
}
