//! Hosts as network namespaces: a bridge at the control plane, and a cable to it from each node.
//!
//! They have names, unlike those of an ensemble, so that users can enter them. This machine's own network
//! does not change: nothing routes between it and these.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::layout::{ADDRESS, NodeLayout, control_plane};
use crate::Host;
use crate::owner::Owner;

/// The folder in which `ip netns` keeps them.
const NAMESPACES: &str = "/run/netns";

/// Makes the namespaces of a control plane and its nodes, and the cables between them.
///
/// # Errors
/// When the kernel refuses, or some of them are there already.
pub(crate) fn create(nodes: u8, owner: &Owner) -> anyhow::Result<(Host, Vec<Host>)> {
    let control_plane = host(&control_plane(), ADDRESS, owner)?;
    control_plane.ip(&format!(
        "link add lkbr type bridge\naddr add {ADDRESS}/24 dev lkbr\nlink set lkbr up\n"
    ))?;
    let mut hosts = Vec::new();
    for node in NodeLayout::all(nodes) {
        let host = host(&node.namespace(), node.address(), owner)?;
        let cable = node.cable();
        control_plane.ip(&format!(
            "link add {cable} type veth peer name eth0 netns {}\n\
             link set {cable} master lkbr\nlink set {cable} up\n",
            node.namespace(),
        ))?;
        host.ip(&format!(
            "addr add {}/24 dev eth0\nlink set eth0 up\nroute add default via {ADDRESS}\n",
            node.address(),
        ))?;
        hosts.push(host);
    }
    // Pods keep their addresses on the way, so every host needs routes to their networks.
    for node in NodeLayout::all(nodes) {
        let route = format!("route add {} via {}\n", node.pods(), node.address());
        control_plane.ip(&route)?;
        for (other, host) in NodeLayout::all(nodes).zip(&hosts) {
            if other != node {
                host.ip(&route)?;
            }
        }
    }
    Ok((control_plane, hosts))
}

/// The hosts of a cluster that another process has made.
///
/// # Errors
/// When there is none.
pub(crate) fn existing(nodes: u8, owner: &Owner) -> anyhow::Result<(Host, Vec<Host>)> {
    let name = control_plane();
    let control_plane = Host::in_namespace(&name, ADDRESS, owner)
        .with_context(|| format!("there is no network namespace {name}"))?;
    let hosts = NodeLayout::all(nodes)
        .map(|node| Host::in_namespace(&node.namespace(), node.address(), owner))
        .collect::<io::Result<_>>()
        .context("a node has no network namespace")?;
    Ok((control_plane, hosts))
}

/// Removes all of them. A process that still runs in one keeps it, without a name.
///
/// # Errors
/// When one cannot be removed.
pub(crate) fn remove() -> anyhow::Result<()> {
    for name in names() {
        run(&["netns", "del", &name])?;
    }
    Ok(())
}

/// The names of those that are there.
pub(crate) fn names() -> Vec<String> {
    NodeLayout::all(NodeLayout::MOST)
        .map(NodeLayout::namespace)
        .chain([control_plane()])
        .filter(|name| Path::new(NAMESPACES).join(name).exists())
        .collect()
}

fn host(name: &str, address: std::net::Ipv4Addr, owner: &Owner) -> anyhow::Result<Host> {
    run(&["netns", "add", name])?;
    let host = Host::in_namespace(name, address, owner)?;
    host.ip("link set lo up\n")?;
    let forward = Path::new("/proc/sys/net/ipv4/ip_forward");
    host.run(|| fs::write(forward, "1"))?
        .with_context(|| format!("cannot switch on routing in {name}"))?;
    Ok(host)
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot run ip: install iproute2")?;
    ensure!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
