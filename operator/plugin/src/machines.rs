//! Nodes of those ahead in a queue that are marked as out of service.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use lockkeeper_crds::DistributedLock;

use crate::explain::Explanation;

/// The taint of a node whose machine was powered off (KEP-2268).
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Nodes that are looked at: more make no difference to the answer.
const MOST: usize = 5;

/// The nodes of those ahead of a pod that have the taint. A user that may not read nodes gets the rest of the answer.
pub async fn out_of_service(
    client: &Client,
    lock: Option<&DistributedLock>,
    explanation: &Explanation,
) -> Vec<String> {
    let api = Api::<Node>::all(client.clone());
    let mut found = Vec::new();
    for node in ahead(lock, explanation).into_iter().take(MOST) {
        if let Ok(Some(read)) = api.get_opt(&node).await
            && is_tainted(&read)
        {
            found.push(node);
        }
    }
    found
}

/// What such nodes mean for a pod that waits, as the end of a sentence.
pub fn remark(nodes: &[String]) -> Option<String> {
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

/// The nodes of the holders, and of those that wait before a pod.
fn ahead(lock: Option<&DistributedLock>, explanation: &Explanation) -> Vec<String> {
    let Some((status, position)) = lock
        .and_then(|lock| lock.status.as_ref())
        .zip(explanation.position)
    else {
        return Vec::new();
    };
    let holders = status.holders.iter().map(|one| &one.node);
    let waiting = status.queue.iter().take(position - 1).map(|one| &one.node);
    let mut nodes: Vec<_> = holders
        .chain(waiting)
        .flatten()
        .filter(|node| is_name(node))
        .cloned()
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Whether this may be the name of a node. Contenders state it, and it becomes part of a request.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    text.bytes().all(is_part) && text.starts_with(|first: char| first.is_ascii_alphanumeric())
}

fn is_tainted(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == OUT_OF_SERVICE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::explain;
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
            ahead(Some(&lock), &explain(&pod, None, false, Some(&lock)))
        };
        assert_eq!(of("d"), ["n1", "n2"]);
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
        assert_eq!(remark(&[]), None);
        let nodes = ["n1", "n2", "n3"].map(str::to_owned);
        let one = remark(&nodes[..1]).unwrap();
        assert!(
            one.starts_with("; n1 is out of service") && one.contains("trustOutOfServiceTaint"),
            "{one}"
        );
        assert!(
            remark(&nodes)
                .unwrap()
                .starts_with("; n1, n2 and n3 are out of service")
        );
    }
}
