//! A network beside a cluster: pods reach its hosts, until they are cut off.

use std::io;
use std::os::fd::AsRawFd;

use super::{Host, Kind, Network, ROUTER, ip};
use crate::Unsupported;

/// All hosts of a [`Network`].
const HOSTS: &str = "10.99.0.0/16";
/// The name of the cable on both ends.
const CABLE: &str = "lkjoin";

impl Network {
    /// Lays a cable between the router and `gateway`, through which `networks` are reached. It is removed
    /// with this network.
    ///
    /// # Errors
    /// When there are no namespaces, or another network has been joined to this gateway.
    pub fn join(&self, gateway: &Host, networks: &[&str]) -> io::Result<()> {
        let router = match &self.kind {
            Kind::Namespaces { router } => router,
            Kind::Loopback { .. } => {
                return Err(io::Error::other("hosts on loopback can be joined to nothing"));
            }
        };
        let namespace = format!("/proc/{}/fd/{}", std::process::id(), router.as_raw_fd());
        gateway.ip(&format!(
            "link add {CABLE} type veth peer name {CABLE} netns {namespace}\nlink set {CABLE} up\n"
        ))?;
        let address = gateway.address();
        let routes: String = networks
            .iter()
            .map(|network| format!("route add {network} via {address} dev {CABLE}\n"))
            .collect();
        ip(
            router,
            &format!("link set {CABLE} up\nroute add {address} dev {CABLE} scope link\n{routes}"),
        )?;
        gateway.ip(&format!(
            "route add {ROUTER} dev {CABLE} scope link\nroute add {HOSTS} via {ROUTER} dev {CABLE}\n"
        ))
    }

    /// Drops every packet between all hosts and a network that was joined, from now on.
    ///
    /// # Errors
    /// When connections cannot be cut here.
    pub fn cut_network(&self, network: &str) -> Result<(), Unsupported> {
        self.network_rule("add", network)
    }

    /// Reverts [`Self::cut_network`].
    ///
    /// # Errors
    /// When it was not cut.
    pub fn heal_network(&self, network: &str) -> Result<(), Unsupported> {
        self.network_rule("del", network)
    }

    fn network_rule(&self, verb: &str, network: &str) -> Result<(), Unsupported> {
        let Kind::Namespaces { router } = &self.kind else {
            return self.can_cut();
        };
        let rules = format!("rule {verb} from {network} blackhole\nrule {verb} to {network} blackhole\n");
        ip(router, &rules).map_err(|error| Unsupported::new(error.to_string()))
    }
}
