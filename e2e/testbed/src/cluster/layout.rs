//! Names, addresses and paths of the cluster with this process's [`number`]. There is one of each number per machine:
//! another one waits.
//!
//! Clusters of different numbers run side by side. They have the same addresses, in networks that are not connected, and
//! no file, name or port of this machine in common but the mount points of their nodes.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names the number of the cluster that this process starts or uses, from 1 to [`MOST`]: 1 unless it is set.
pub const NUMBER: &str = "LOCKKEEPER_CLUSTER";
/// The largest number.
const MOST: u8 = 9;
/// The control plane's address, in the nodes' network.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The network of services. The API server has the first address in it.
pub(crate) const SERVICES: &str = "10.96.0.0/24";
/// The API server's address as a service.
pub(crate) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The registry's port on [`ADDRESS`].
pub(crate) const REGISTRY_PORT: u16 = 5000;
/// The registry, as pods and nodes name it.
pub const REGISTRY_INSIDE: &str = "10.77.0.1:5000";
/// Locked by the supervisors of all clusters together, while their nodes may mount something at
/// [`MOUNT_POINTS`](super::node::MOUNT_POINTS). It is never removed.
pub(crate) const MOUNTS_LOCK: &str = "/run/lockkeeper-cluster-mounts.lock";

/// The number of the cluster that this process starts or uses.
///
/// # Panics
/// When [`NUMBER`] is not a number from 1 to [`MOST`].
pub(crate) fn number() -> u8 {
    static CHOSEN: OnceLock<u8> = OnceLock::new();
    *CHOSEN.get_or_init(|| match std::env::var(NUMBER) {
        Err(_) => 1,
        Ok(text) => match text.parse() {
            Ok(number @ 1..=MOST) => number,
            _ => panic!("{NUMBER} is {text:?}; it has to be a number from 1 to {MOST}"),
        },
    })
}

/// What stands behind the names of a cluster's things on this machine: nothing for the first cluster.
fn suffix() -> String {
    match number() {
        1 => String::new(),
        other => other.to_string(),
    }
}

/// The namespace of the control plane, and of other programs beside the cluster.
pub fn control_plane() -> String {
    format!("lk{}-cp", suffix())
}

/// The API server's port, on [`ADDRESS`] and, for users and their programs, on this machine's own 127.0.0.1,
/// so that one kubeconfig is valid for both. It is not 6443, where another cluster may listen.
pub(crate) fn api_port() -> u16 {
    16443 + u16::from(number() - 1)
}

/// The registry's port on this machine's own 127.0.0.1.
pub fn registry_port_outside() -> u16 {
    15000 + u16::from(number() - 1)
}

/// Everything that the cluster writes, images included; removed with it.
pub fn directory() -> PathBuf {
    PathBuf::from(format!("/var/cache/lockkeeper-cluster{}", suffix()))
}

/// Locked by the supervisor while there is a cluster of this number. It names the supervisor, and is never removed.
pub(crate) fn lock() -> PathBuf {
    PathBuf::from(format!("/run/lockkeeper-cluster{}.lock", suffix()))
}

/// The socket on which the supervisor accepts orders.
pub(crate) fn control() -> PathBuf {
    directory().join("control.sock")
}

/// The supervisor's own log.
pub(crate) fn log() -> PathBuf {
    directory().join("supervisor.log")
}

pub fn kubeconfig() -> PathBuf {
    directory().join("kubeconfig")
}

/// The image of every pod's sandbox.
pub(crate) fn pause_image() -> String {
    reference("lockkeeper/pause:1")
}

/// An image in the cluster's own registry, as pods name it.
pub(crate) fn reference(name: &str) -> String {
    format!("{REGISTRY_INSIDE}/{name}")
}

/// The networks of nodes and pods, for programs that these have to reach.
pub fn kubernetes_networks() -> [String; 2] {
    ["10.77.0.0/24".to_owned(), "10.78.0.0/16".to_owned()]
}

/// A program of this machine, also one for administrators, whose folder is not on every user's path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
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
        format!("lk{}-n{}", suffix(), self.number)
    }

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
        format!("lockkeeper{}-n{}", suffix(), self.number)
    }

    pub fn directory(self) -> PathBuf {
        directory().join(self.name())
    }
}
