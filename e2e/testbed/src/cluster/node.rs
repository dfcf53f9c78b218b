//! The programs of a node: containerd, kubelet and kube-proxy, in a mount namespace of their own.
//!
//! All mounts of a node's pods are in that namespace and vanish with its last process. So nothing is ever
//! mounted on this machine itself, and a killed node is like a machine without power.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::net::UnixStream;
use std::process::Command;

use anyhow::Context;
use serde_json::json;

use super::build::Programs;
use super::cgroups;
use super::config::Config;
use super::control_plane::answers;
use super::layout::{ADDRESS, NodeLayout, REGISTRY_INSIDE, find_program, pause_image};
use super::part::Part;
use super::pki::Pki;
use crate::Host;

/// Mounts a node's own folders over the fixed paths that its programs write to. `/run` is empty after each
/// start, as on a machine.
const MACHINE: &str = r#"
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$0/log" /var/log
for place in kubelet cni; do mount --bind "$0/$place" "/var/lib/$place"; done
exec "$1"
"#;
/// Fixed paths of programs. If they are missing on this machine, they are created, so that something can be
/// mounted there, and removed again if they are empty.
pub(crate) const MOUNT_POINTS: [&str; 3] = ["/var/lib/kubelet", "/var/lib/cni", "/var/lib/containers"];

/// The programs of a node, in the order in which they need one another. The first one stands for the machine:
/// the others run inside its mounts.
///
/// # Errors
/// When a configuration cannot be written, or there is no runc.
pub(crate) fn parts(
    config: &Config,
    programs: &Programs,
    pki: &Pki,
    node: NodeLayout,
    host: &Host,
) -> anyhow::Result<Vec<Part>> {
    let directory = node.directory();
    for place in ["log", "kubelet", "cni", "containerd", "net.d", "registries"] {
        fs::create_dir_all(directory.join(place))?;
    }
    write_network(node)?;
    write_containerd(programs, node)?;
    write_kubelet(config, pki, node)?;
    write_proxy(pki, node)?;
    Ok(vec![
        machine(programs, node, host),
        containerd(programs, node, host),
        kubelet(programs, pki, node, host),
        proxy(programs, node, host),
    ])
}

fn machine(programs: &Programs, node: NodeLayout, host: &Host) -> Part {
    let pause = programs.path("pause");
    let program = pause.clone();
    let command = move || {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "slave", "sh", "-ec", MACHINE])
            .arg(node.directory())
            .arg(&pause);
        command
    };
    let ready = move |pid: rustix::process::Pid| {
        fs::read_link(format!("/proc/{}/exe", pid.as_raw_pid())).is_ok_and(|running| running == program)
    };
    Part::new(
        format!("{}/machine", node.name()),
        host,
        Some(node),
        command,
        Box::new(ready),
    )
}

fn containerd(programs: &Programs, node: NodeLayout, host: &Host) -> Part {
    let programs = programs.clone();
    let command = move || {
        let mut command = programs.command("containerd");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .arg("--config")
            .arg(node.directory().join("containerd.toml"))
            // Its shim is in the same folder; runc and iptables are in folders for administrators.
            .env(
                "PATH",
                format!("{}:{path}:/usr/sbin:/sbin", programs.containers().display()),
            );
        command
    };
    let ready = |pid: rustix::process::Pid| {
        let root = format!("/proc/{}/root", pid.as_raw_pid());
        UnixStream::connect(format!("{root}/run/containerd/containerd.sock")).is_ok()
    };
    Part::new(
        format!("{}/containerd", node.name()),
        host,
        Some(node),
        command,
        Box::new(ready),
    )
}

fn kubelet(programs: &Programs, pki: &Pki, node: NodeLayout, host: &Host) -> Part {
    let (programs, pki) = (programs.clone(), pki.clone());
    let command = move || {
        let mut command = programs.command("kubelet");
        command
            .arg(format!(
                "--config={}",
                node.directory().join("kubelet.json").display()
            ))
            .arg(format!("--kubeconfig={}", pki.kubeconfig(&node.name()).display()))
            .arg("--cert-dir=/var/lib/kubelet/pki")
            .arg(format!("--hostname-override={}", node.name()))
            .arg(format!("--node-ip={}", node.address()));
        command
    };
    let ready = answers(host, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 10248));
    Part::new(
        format!("{}/kubelet", node.name()),
        host,
        Some(node),
        command,
        ready,
    )
}

fn proxy(programs: &Programs, node: NodeLayout, host: &Host) -> Part {
    let programs = programs.clone();
    let command = move || {
        let mut command = programs.command("kube-proxy");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .arg(format!(
                "--config={}",
                node.directory().join("proxy.json").display()
            ))
            .arg(format!("--hostname-override={}", node.name()))
            .env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command
    };
    let ready = answers(host, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 10256));
    Part::new(
        format!("{}/kube-proxy", node.name()),
        host,
        Some(node),
        command,
        ready,
    )
}

/// Each pod has a cable of its own to the node, which routes. So packets to a service pass the node's rules
/// on the way there and back, also between two pods of one node. Behind a bridge they do so only if the
/// kernel has `br_netfilter`.
fn write_network(node: NodeLayout) -> anyhow::Result<()> {
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni/addresses",
                    "ranges": [[{"subnet": node.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    let path = node.directory().join("net.d/10-pods.conflist");
    fs::write(path, serde_json::to_vec_pretty(&network)?)?;
    Ok(())
}

fn write_containerd(programs: &Programs, node: NodeLayout) -> anyhow::Result<()> {
    let directory = node.directory();
    // Images that are named without a registry come from the cluster's own, too.
    for name in [REGISTRY_INSIDE, "docker.io"] {
        let registry = directory.join("registries").join(name);
        fs::create_dir_all(&registry)?;
        fs::write(
            registry.join("hosts.toml"),
            format!("server = \"http://{REGISTRY_INSIDE}\"\n"),
        )?;
    }
    let runc = find_program("runc").context("there is no runc: apt-get install runc")?;
    let config = format!(
        r#"version = 3
root = "{root}"
state = "/run/containerd"

[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"

[plugins."io.containerd.cri.v1.images".registry]
config_path = "{registries}"

[plugins."io.containerd.cri.v1.runtime"]
# Without the right to protect processes from the kernel's out-of-memory killer, as in some containers.
restrict_oom_score_adj = true
# It would load a profile into this machine's kernel.
disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plugins}"]
conf_dir = "{networks}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"#,
        root = directory.join("containerd").display(),
        pause = pause_image(),
        registries = directory.join("registries").display(),
        plugins = programs.containers().display(),
        networks = directory.join("net.d").display(),
        runc = runc.display(),
    );
    fs::write(directory.join("containerd.toml"), config)?;
    Ok(())
}

fn write_kubelet(config: &Config, pki: &Pki, node: NodeLayout) -> anyhow::Result<()> {
    let directory = node.directory();
    // Pods ask only the cluster's DNS server.
    fs::write(directory.join("resolv.conf"), "")?;
    let grace = config.node_grace;
    let mut kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.cgroup()),
        "failSwapOn": false,
        "resolvConf": directory.join("resolv.conf"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [ADDRESS],
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki.path("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        // A quarter of this is the time between two signs of life, as in Kubernetes' own 40 s.
        "nodeLeaseDurationSeconds": grace.as_secs(),
        "nodeStatusUpdateFrequency": format!("{}ms", grace.as_millis() / 4),
        // The disk is this machine's, so the cluster must not react to its state.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": false,
    });
    if !cgroups::is_unified() {
        kubelet["failCgroupV1"] = json!(false);
    }
    fs::write(
        directory.join("kubelet.json"),
        serde_json::to_vec_pretty(&kubelet)?,
    )?;
    Ok(())
}

fn write_proxy(pki: &Pki, node: NodeLayout) -> anyhow::Result<()> {
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": pki.kubeconfig("proxy")},
        // The table of connections is the kernel's: a namespace may not resize it.
        "conntrack": {"maxPerCore": 0, "min": 0},
    });
    let path = node.directory().join("proxy.json");
    fs::write(path, serde_json::to_vec_pretty(&proxy)?)?;
    Ok(())
}
