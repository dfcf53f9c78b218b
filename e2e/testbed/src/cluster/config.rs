//! The configuration of a cluster.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Config {
    /// How many nodes, from 1 to [`NodeLayout::MOST`](super::NodeLayout::MOST).
    pub nodes: u8,
    /// After this time without a sign of life a node is NotReady, in whole seconds, at least 4 s. (The
    /// controller manager's `--node-monitor-grace-period`. A node gives four signs of life in that time, as
    /// in the 40 s of a node's lease in Kubernetes.)
    pub node_grace: Duration,
}

impl Config {
    /// The configuration for [`Cluster::shared`](super::Cluster::shared): the cluster notices a dead node
    /// after 12 s.
    pub fn for_tests() -> Self {
        Self {
            node_grace: Duration::from_secs(12),
            ..Self::default()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nodes: 2,
            node_grace: Duration::from_secs(40),
        }
    }
}
