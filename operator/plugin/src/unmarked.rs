//! Why a pod without a lock has none. Pure.

use lockkeeper_crds::keys;

use crate::workload::{Above, Workload};

/// How to put a workload behind the lock that it already names.
const PUT_BEHIND: &str = "scale it to zero, wait until its pods are gone, change anything in it (`kubectl rollout \
                          restart` does) and scale it up";

/// The sentence about a pod that names no lock. `is_left_out` is true where its namespace says that the webhooks are not
/// asked.
pub(crate) fn unmarked(name: &str, above: &Above, is_left_out: bool) -> String {
    match above {
        Above::Named(Workload {
            name: workload,
            lock,
            is_followed: true,
        }) if is_left_out => format!(
            "{name} runs WITHOUT the lock {lock} that {workload} names: its namespace has the label {}: \
             disabled, so its pods are not marked; remove {} from {workload}, or the label from the namespace, \
             and then {PUT_BEHIND}",
            keys::INJECTION,
            keys::LOCK,
        ),
        // Only a change of the workload goes past the operator, which marks its pods.
        Above::Named(Workload {
            name: workload,
            lock,
            is_followed: true,
        }) => format!(
            "{name} runs WITHOUT the lock {lock} that {workload} names: the annotation is older than the \
             operator, or the operator's chart leaves this namespace out; if it is older, {PUT_BEHIND}"
        ),
        Above::Named(Workload {
            name: workload, lock, ..
        }) => format!(
            "{name} runs WITHOUT the lock {lock} that {workload} names: Lockkeeper watches only its \
             pods; write {}: {lock} into the metadata of its pod template",
            keys::LOCK
        ),
        Above::Nothing => format!(
            "{name} has no lock: neither it nor its workload has the annotation {}",
            keys::LOCK
        ),
        Above::Unreadable(workload) => format!(
            "{name} has no lock. Its workload {workload} could not be read: if that has the annotation {}, the pod runs \
             WITHOUT its lock; ask a user who may read it",
            keys::LOCK
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_a_lock_is_told_what_is_missing() {
        let of = |above: &Above| unmarked("x", above, false);
        assert!(of(&Above::Nothing).contains("has no lock: neither"));
        let unknown = of(&Above::Unreadable("deployment/report".into()));
        assert!(
            unknown.contains("Its workload deployment/report could not be read"),
            "{unknown}"
        );
        let sentence = |name: &str, is_followed, is_left_out| {
            let workload = Workload {
                name: name.into(),
                lock: "report".into(),
                is_followed,
            };
            unmarked("x", &Above::Named(workload), is_left_out)
        };
        let restart = sentence("deployment/report", true, false);
        assert!(
            restart.starts_with("x runs WITHOUT the lock report") && restart.contains("rollout restart"),
            "{restart}"
        );
        let left_out = sentence("deployment/report", true, true);
        assert!(
            left_out.starts_with("x runs WITHOUT the lock report")
                && left_out.contains("the label lockkeeper.io/injection: disabled"),
            "{left_out}"
        );
        let template = sentence("cloneset/report", false, true);
        assert!(
            template.starts_with("x runs WITHOUT the lock report") && template.contains("its pod template"),
            "{template}"
        );
    }
}
