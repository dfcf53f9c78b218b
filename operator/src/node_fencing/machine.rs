//! What counts of a node, for the question whether its machine is known to be off.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// The taint that an administrator puts on a node after its machine was powered off (KEP-2268, non-graceful node
/// shutdown). Only the key counts, as for Kubernetes' own controllers.
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A node, as the API server described it at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// UID of the node: one that was created again under the same name has another.
    pub(crate) uid: String,
    /// When that was created, by the clock of the API server.
    pub(crate) created: Option<Timestamp>,
    /// Whether it has the taint.
    pub(crate) is_out_of_service: bool,
    /// Whether Kubernetes hears nothing of its kubelet (`Ready` is `Unknown`). A kubelet that says itself that it is not
    /// ready runs, and so does its machine.
    pub(crate) is_silent: bool,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn of(node: &Node) -> Self {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let status = node.status.iter();
        let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
        Self {
            uid: node.uid().unwrap_or_default(),
            created: node.creation_timestamp().map(|Time(created)| created),
            is_out_of_service: taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE),
            is_silent: conditions.any(|one| one.type_ == "Ready" && one.status == "Unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_silent_only_if_nobody_hears_of_its_kubelet() {
        let node = |conditions: serde_json::Value| -> Machine {
            let node = json!({
                "metadata": {"name": "n1", "uid": "m1"},
                "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
                "status": {"conditions": conditions},
            });
            Machine::of(&serde_json::from_value(node).unwrap())
        };
        let ready = |status: &str| node(json!([{"type": "Ready", "status": status}])).is_silent;
        assert!(ready("Unknown") && !ready("True") && !ready("False"));
        assert!(!node(json!([])).is_silent);
        assert!(!node(json!([{"type": "DiskPressure", "status": "Unknown"}])).is_silent);
    }

    #[test]
    fn of_all_taints_only_out_of_service_says_that_a_machine_is_off() {
        let tainted = |key: &str| -> bool {
            let node = json!({
                "metadata": {"name": "n1", "uid": "m1"},
                "spec": {"taints": [{"key": "other", "effect": "NoSchedule"}, {"key": key, "effect": "NoExecute"}]},
            });
            Machine::of(&serde_json::from_value(node).unwrap()).is_out_of_service
        };
        assert!(tainted("node.kubernetes.io/out-of-service"));
        for key in [
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/not-ready",
            "node.cloudprovider.kubernetes.io/shutdown",
        ] {
            assert!(!tainted(key), "{key}");
        }
    }
}
