//! Nodes of those ahead in a queue that are marked as out of service.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use lockkeeper_crds::DistributedLock;

use crate::explain::Explanation;
use crate::names::is_name;

/// The taint of a node whose machine was powered off (KEP-2268).
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Nodes that are looked at, the holders' first: more make the answer late.
const MOST: usize = 5;

/// How long the API server may take to describe them all. Who asks waits at a terminal, and the answer is complete without.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of the nodes of those ahead of a pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Machines {
    /// Those that have the taint.
    out_of_service: Vec<String>,
    /// How many were not looked at.
    unknown: usize,
}

/// The nodes of those ahead of a pod that have the taint. A user that may not read nodes gets the rest of the answer.
pub(crate) async fn out_of_service(
    client: &Client,
    lock: Option<&DistributedLock>,
    explanation: &Explanation,
) -> Machines {
    let api = Api::<Node>::all(client.clone());
    let nodes = ahead(lock, explanation);
    let mut machines = Machines {
        unknown: nodes.len(),
        ..Machines::default()
    };
    let look = async {
        for node in nodes.into_iter().take(MOST) {
            match api.get_opt(&node).await {
                Ok(read) => {
                    machines.unknown -= 1;
                    if read.as_ref().is_some_and(is_tainted) {
                        machines.out_of_service.push(node);
                    }
                }
                // Nodes are none of this user's business.
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    machines = Machines::default();
                    return;
                }
                Err(_) => {}
            }
        }
    };
    // What was found until then counts.
    let _ = tokio::time::timeout(PATIENCE, look).await;
    machines
}

/// What such nodes mean for a pod that waits, as the end of a sentence.
pub(crate) fn remark(machines: &Machines) -> Option<String> {
    let taints = taints(&machines.out_of_service);
    let unknown = match machines.unknown {
        0 => None,
        1 => Some("; whether 1 other node ahead is out of service was not found out".to_owned()),
        more => Some(format!(
            "; whether {more} other nodes ahead are out of service was not found out"
        )),
    };
    let remark = taints.into_iter().chain(unknown).collect::<String>();
    Some(remark).filter(|remark| !remark.is_empty())
}

fn taints(nodes: &[String]) -> Option<String> {
    let (last, others) = nodes.split_last()?;
    let (are, which) = match others {
        [] => ("is", last.clone()),
        others => ("are", format!("{} and {last}", others.join(", "))),
    };
    Some(format!(
        "; {which} {are} out of service: the operator removes what waits or holds there if its chart says so \
         (trustOutOfServiceTaint) and the node is silent, and otherwise it goes when its session ends"
    ))
}

/// The nodes of the holders, and of those that wait before a pod, in the order of the queue.
fn ahead(lock: Option<&DistributedLock>, explanation: &Explanation) -> Vec<String> {
    let Some((status, position)) = lock
        .and_then(|lock| lock.status.as_ref())
        .zip(explanation.position)
    else {
        return Vec::new();
    };
    let holders = status.holders.iter().map(|one| &one.node);
    let waiting = status.queue.iter().take(position - 1).map(|one| &one.node);
    let mut seen = HashSet::new();
    let nodes = holders.chain(waiting).flatten();
    nodes
        .filter(|node| is_name(node) && seen.insert(*node))
        .cloned()
        .collect()
}

fn is_tainted(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == OUT_OF_SERVICE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::explain;
    use crate::workload::Above;
    use serde_json::json;

    #[test]
    fn the_nodes_ahead_of_a_pod_are_looked_at_and_none_behind_it() {
        let lock: DistributedLock = serde_json::from_value(json!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "report"}, "spec": {},
            "status": {
                "holders": [{"pod": "a", "uid": "a", "node": "n2", "contender": "c1", "fencingToken": 7}],
                "waiting": 4,
                "queue": [
                    {"pod": "b", "uid": "b", "node": "n1", "contender": "c2"},
                    {"pod": "c", "uid": "c", "node": "../pods?x=", "contender": "c3"},
                    {"pod": "d", "uid": "d", "node": "n3", "contender": "c4"},
                    {"pod": "e", "uid": "e", "node": "n4", "contender": "c5"},
                ],
            },
        }))
        .unwrap();
        let of = |name: &str| {
            let pod =
                json!({"metadata": {"name": name, "uid": name, "labels": {"lockkeeper.io/lock": "report"}}});
            let pod = serde_json::from_value(pod).unwrap();
            ahead(Some(&lock), &explain(&pod, &Above::Nothing, false, Some(&lock)))
        };
        assert_eq!(of("d"), ["n2", "n1"], "the holder's first");
        assert_eq!(of("b"), ["n2"]);
        assert!(of("a").is_empty(), "it holds");
    }

    #[test]
    fn a_taint_is_told_with_what_it_does() {
        let node = |key: &str| -> Node {
            serde_json::from_value(json!({"spec": {"taints": [{"key": key, "effect": "NoExecute"}]}}))
                .unwrap()
        };
        assert!(is_tainted(&node("node.kubernetes.io/out-of-service")));
        assert!(!is_tainted(&node("node.kubernetes.io/unreachable")));
        let remark = |nodes: &[&str], unknown| {
            super::remark(&Machines {
                out_of_service: nodes.iter().map(|node| (*node).to_owned()).collect(),
                unknown,
            })
        };
        assert_eq!(remark(&[], 0), None);
        let one = remark(&["n1"], 0).unwrap();
        assert!(
            one.starts_with("; n1 is out of service") && one.contains("trustOutOfServiceTaint"),
            "{one}"
        );
        assert!(
            remark(&["n1", "n2", "n3"], 0)
                .unwrap()
                .starts_with("; n1, n2 and n3 are out of service")
        );
        assert_eq!(
            remark(&[], 2).unwrap(),
            "; whether 2 other nodes ahead are out of service was not found out"
        );
        let both = remark(&["n1"], 1).unwrap();
        assert!(
            both.starts_with("; n1 is out of service")
                && both.ends_with("1 other node ahead is out of service was not found out"),
            "{both}"
        );
    }
}
