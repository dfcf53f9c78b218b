//! Names, addresses and paths of the cluster. There is one per machine: another one waits.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The namespace of the control plane, and of other programs beside the cluster.
pub const CONTROL_PLANE: &str = "lk-cp";
/// The control plane's address, in the nodes' network.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The network of services. The API server has the first address in it.
pub const SERVICES: &str = "10.96.0.0/24";
/// The API server's address as a service.
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The API server's port, on [`ADDRESS`] and, for users and their programs, on this machine's own 127.0.0.1,
/// so that one kubeconfig is valid for both. It is not 6443, where another cluster may listen.
pub const API_PORT: u16 = 16443;
/// The registry's port on [`ADDRESS`].
pub const REGISTRY_PORT: u16 = 5000;
/// The registry, as pods and nodes name it.
pub const REGISTRY_INSIDE: &str = "10.77.0.1:5000";
/// The registry's port on this machine's own 127.0.0.1.
pub const REGISTRY_PORT_OUTSIDE: u16 = 15000;
/// Everything that the cluster writes, images included; removed with it.
pub const DIRECTORY: &str = "/var/cache/lockkeeper-cluster";
/// Locked by the supervisor while there is a cluster. It names the supervisor, and is never removed.
pub const LOCK: &str = "/run/lockkeeper-cluster.lock";
/// The socket on which the supervisor accepts orders.
pub const CONTROL: &str = "/var/cache/lockkeeper-cluster/control.sock";
/// The supervisor's own log.
pub const LOG: &str = "/var/cache/lockkeeper-cluster/supervisor.log";
/// The administrator's kubeconfig.
pub const KUBECONFIG: &str = "/var/cache/lockkeeper-cluster/kubeconfig";

/// The image of every pod's sandbox.
pub fn pause_image() -> String {
    reference("lockkeeper/pause:1")
}

/// An image in the cluster's own registry, as pods name it.
pub fn reference(name: &str) -> String {
    format!("{REGISTRY_INSIDE}/{name}")
}

/// The networks of nodes and pods, for programs that these have to reach.
pub fn kubernetes_networks() -> [String; 2] {
    ["10.77.0.0/24".to_owned(), "10.78.0.0/16".to_owned()]
}

/// A program of this machine, also one for administrators, whose folder is not on every user's path.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|program| program.is_file())
}

/// A node: `n1`, `n2`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLayout {
    /// Counted from 1.
    pub number: u8,
}

impl NodeLayout {
    /// The most nodes that a cluster has.
    pub const MOST: u8 = 9;

    /// All nodes of a cluster with this many.
    pub fn all(nodes: u8) -> impl Iterator<Item = Self> {
        (1..=nodes).map(|number| Self { number })
    }

    /// Its name in the cluster.
    pub fn name(self) -> String {
        format!("n{}", self.number)
    }

    /// Its network namespace.
    pub fn namespace(self) -> String {
        format!("lk-n{}", self.number)
    }

    /// Its address.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 10 + self.number)
    }

    /// The network of its pods.
    pub fn pods(self) -> String {
        format!("10.78.{}.0/24", self.number)
    }

    /// The end of its cable at the control plane's bridge.
    pub fn cable(self) -> String {
        format!("lkv{}", self.number)
    }

    /// Its control group in every hierarchy; the kubelet makes those of pods below it.
    pub fn cgroup(self) -> String {
        format!("lockkeeper-n{}", self.number)
    }

    /// Its files.
    pub fn directory(self) -> PathBuf {
        PathBuf::from(DIRECTORY).join(self.name())
    }
}
