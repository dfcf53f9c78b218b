//! What the nodes can do, as their kubelets and runtimes say. The API server may know a field that a kubelet does
//! not: that one would start a container as if the field were not there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, PodSpec};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

use crate::node_fencing::Fencing;
use crate::node_fencing::machine::Machine;

/// Nodes in one page of a list.
const PAGE: u32 = 500;

/// Oldest kubelet that mounts images unless that is switched off (`ImageVolume`, KEP-4639: on by default from 1.35). One
/// without it has no plugin for the volume (`ProbeVolumePlugins` in `cmd/kubelet/app/plugins.go`), and its pods wait for
/// ever; one before 1.31 does not know the field, and mounts an empty folder.
const IMAGE_VOLUME: (u32, u32) = (1, 35);

/// Oldest runtimes with image volumes (KEP-4639).
const RUNTIMES: [(&str, (u32, u32)); 2] = [("containerd", (2, 1)), ("cri-o", (1, 31))];

/// Oldest kubelet that reads variables from files unless that is switched off (`EnvFiles`, KEP-3721: on by default
/// from 1.35). Kubelets do not declare it in `status.declaredFeatures`.
const FILE_KEY_REF: (u32, u32) = (1, 35);

/// Label of a node with its operating system.
const OS: &str = "kubernetes.io/os";

/// Of one node, what counts here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeFacts {
    labels: BTreeMap<String, String>,
    kubelet: String,
    runtime: String,
}

#[derive(Debug, Default)]
pub struct Nodes {
    by_name: RwLock<HashMap<String, NodeFacts>>,
    is_ready: watch::Sender<bool>,
}

impl NodeFacts {
    fn of(node: &Node) -> Self {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        Self {
            labels: node.labels().clone(),
            kubelet: info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
            runtime: info
                .map(|info| info.container_runtime_version.clone())
                .unwrap_or_default(),
        }
    }

    fn is_windows(&self) -> bool {
        self.labels.get(OS).is_some_and(|os| os == "windows")
    }
}

impl Nodes {
    /// True once all nodes are known.
    pub(crate) fn ready(&self) -> watch::Receiver<bool> {
        self.is_ready.subscribe()
    }

    /// Follows the API server; to be run as a task. Ends with its watch: never. Tells `fencing`, too, so that nodes are
    /// followed once.
    pub(crate) async fn follow(&self, client: Client, fencing: Option<Arc<Fencing>>) {
        let config = watcher::Config::default().page_size(PAGE);
        let mut events = watcher(Api::<Node>::all(client), config)
            .default_backoff()
            .boxed();
        let (mut first, mut machines) = (HashMap::new(), HashMap::new());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => (first, machines) = (HashMap::new(), HashMap::new()),
                Ok(Event::InitApply(node)) => {
                    first.insert(node.name_any(), NodeFacts::of(&node));
                    if fencing.is_some() {
                        machines.insert(node.name_any(), Machine::of(&node));
                    }
                }
                Ok(Event::InitDone) => {
                    self.replace(std::mem::take(&mut first));
                    self.is_ready.send_replace(true);
                    if let Some(fencing) = &fencing {
                        fencing.see_all(std::mem::take(&mut machines));
                    }
                }
                Ok(Event::Apply(node)) => {
                    self.edit(|nodes| drop(nodes.insert(node.name_any(), NodeFacts::of(&node))));
                    if let Some(fencing) = &fencing {
                        fencing.see(&node.name_any(), Some(&Machine::of(&node)));
                    }
                }
                Ok(Event::Delete(node)) => {
                    self.edit(|nodes| drop(nodes.remove(&node.name_any())));
                    if let Some(fencing) = &fencing {
                        fencing.see(&node.name_any(), None);
                    }
                }
                Err(error) => tracing::warn!(%error, "Failed to watch nodes; trying again"),
            }
        }
    }

    /// Whether all nodes can mount an image: on one that cannot, a wrapped container would never start.
    pub(crate) fn mount_images(&self) -> bool {
        let nodes = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        nodes
            .values()
            .filter(|node| !node.is_windows())
            .all(|node| mounts_images(&node.kubelet, &node.runtime))
    }

    /// A node that this pod may go to, whose kubelet would start a gated container without its gate; and why. Nodes
    /// that taints, affinity or a cordon keep it from count too: these change. `may_name` says whether the caller may
    /// learn which node it is.
    pub(crate) fn without_gate(&self, spec: &PodSpec, may_name: bool) -> Option<String> {
        let nodes = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let selector = spec.node_selector.iter().flatten();
        let wanted: Vec<_> = selector.collect();
        let may_go = |name: &String, node: &NodeFacts| {
            !node.is_windows()
                && spec.node_name.as_ref().is_none_or(|wanted| wanted == name)
                && wanted
                    .iter()
                    .all(|(key, value)| node.labels.get(*key) == Some(*value))
        };
        let mut old: Vec<_> = nodes
            .iter()
            .filter(|(name, node)| may_go(name, node) && !gates(&node.kubelet))
            .collect();
        old.sort_by_key(|(name, _)| *name);
        let (name, node) = old.first()?;
        if !may_name {
            return Some("a node that it may go to has a kubelet before 1.35".to_owned());
        }
        let version = match node.kubelet.as_str() {
            "" => "of an unknown version",
            version => version,
        };
        Some(format!("node {name} has kubelet {version}"))
    }

    fn replace(&self, nodes: HashMap<String, NodeFacts>) {
        self.edit(|all| *all = nodes);
    }

    fn edit(&self, edit: impl FnOnce(&mut HashMap<String, NodeFacts>)) {
        edit(&mut self.by_name.write().unwrap_or_else(PoisonError::into_inner));
    }
}

fn gates(kubelet: &str) -> bool {
    version(kubelet) >= FILE_KEY_REF
}

fn mounts_images(kubelet: &str, runtime: &str) -> bool {
    let Some((name, of_runtime)) = runtime.split_once("://") else {
        return false;
    };
    let mut known = RUNTIMES.iter();
    version(kubelet) >= IMAGE_VOLUME
        && known.any(|(known, oldest)| *known == name && version(of_runtime) >= *oldest)
}

/// The first two numbers; 0 for what is not a number.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text
        .trim_start_matches('v')
        .split('.')
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nodes(all: &[(&str, &str, &str)]) -> Nodes {
        let nodes = Nodes::default();
        nodes.replace(
            all.iter()
                .map(|(name, kubelet, label)| {
                    let node = serde_json::from_value(json!({
                        "metadata": {"name": name, "labels": {"pool": label, OS: if *label == "windows" { "windows" } else { "linux" }}},
                        "status": {"nodeInfo": {
                            "kubeletVersion": kubelet, "containerRuntimeVersion": "containerd://2.1.0", "architecture": "",
                            "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "",
                            "osImage": "", "systemUUID": "",
                        }},
                    }))
                    .unwrap();
                    ((*name).to_owned(), NodeFacts::of(&node))
                })
                .collect(),
        );
        nodes
    }

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pod_is_gated_only_if_every_node_that_it_may_go_to_gates() {
        let all = nodes(&[
            ("a", "v1.36.3", "new"),
            ("b", "v1.35.0+k3s1", "new"),
            ("c", "v1.34.9", "old"),
            ("d", "v1.29.0", "windows"),
        ]);
        let anywhere = spec(json!({"containers": []}));
        assert_eq!(
            all.without_gate(&anywhere, true).as_deref(),
            Some("node c has kubelet v1.34.9")
        );
        for chosen in [json!({"nodeSelector": {"pool": "new"}}), json!({"nodeName": "a"})] {
            let mut pod = json!({"containers": []});
            pod.as_object_mut()
                .unwrap()
                .extend(chosen.as_object().unwrap().clone());
            assert_eq!(all.without_gate(&spec(pod), true), None, "{chosen}");
        }
        let old = spec(json!({"containers": [], "nodeSelector": {"pool": "old"}}));
        assert!(all.without_gate(&old, true).is_some());
        // The caller is not known.
        assert_eq!(
            all.without_gate(&old, false).as_deref(),
            Some("a node that it may go to has a kubelet before 1.35")
        );
        assert_eq!(
            nodes(&[("x", "", "new")])
                .without_gate(&anywhere, true)
                .as_deref(),
            Some("node x has kubelet of an unknown version")
        );
    }

    #[test]
    fn a_node_mounts_images_only_if_its_kubelet_and_its_runtime_are_known_to() {
        for (kubelet, runtime, mounts) in [
            ("v1.35.0", "containerd://2.1.0", true),
            ("v1.36.3+k3s1", "containerd://v2.4.2-k3s1", true),
            ("v1.36.3", "containerd://1.7.27", false),
            ("v1.36.3", "containerd://2.0.5", false),
            ("v1.36.3", "cri-o://1.31.0", true),
            ("v1.36.3", "cri-o://1.30.9", false),
            ("v1.36.3", "docker://27.0", false),
            ("v1.36.3", "", false),
            // Whatever its runtime can do.
            ("v1.34.9", "containerd://2.1.0", false),
            ("v1.33.1", "cri-o://1.33.0", false),
            ("", "containerd://2.1.0", false),
        ] {
            assert_eq!(mounts_images(kubelet, runtime), mounts, "{kubelet}, {runtime}");
        }
    }

    #[test]
    fn the_binary_comes_by_an_image_only_if_every_node_can_mount_it() {
        let new = ("a", "v1.36.3", "new");
        assert!(nodes(&[new, ("b", "v1.35.0", "new")]).mount_images());
        assert!(!nodes(&[new, ("b", "v1.34.9", "old")]).mount_images());
        assert!(nodes(&[new, ("b", "v1.29.0", "windows")]).mount_images());
    }
}
