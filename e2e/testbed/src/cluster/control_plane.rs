//! The control plane of a cluster: etcd, the API server, its scheduler and controller manager, the DNS
//! server, the registry.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::json;

use super::build::Programs;
use super::config::Config;
use super::kubectl::Kubectl;
use super::layout::{ADDRESS, REGISTRY_INSIDE, REGISTRY_PORT, SERVICES, api_port, directory};
use super::part::{Part, Ready};
use super::pki::{ADMISSION, Pki};
use crate::Host;

/// Issuer of the tokens of service accounts.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The rights of the DNS server. Kubernetes has its own rules for the other users.
const COREDNS_ROLE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- apiGroups: [""]
  resources: [endpoints, services, pods, namespaces]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:coredns"}]
"#;

/// The programs, in the order in which they need one another.
///
/// # Errors
/// When a configuration cannot be written.
pub(crate) fn parts(
    config: &Config,
    programs: &Programs,
    pki: &Pki,
    host: &Host,
) -> anyhow::Result<Vec<Part>> {
    Ok(vec![
        etcd(programs, host),
        registry(programs, host)?,
        api_server(programs, pki, host),
        controller_manager(config, programs, pki, host),
        scheduler(programs, pki, host),
        coredns(programs, pki, host)?,
    ])
}

/// Writes the objects that the API server needs before pods may start, for `kubectl apply --filename`.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_manifests(path: &Path) -> std::io::Result<()> {
    fs::write(path, COREDNS_ROLE)
}

fn etcd(programs: &Programs, host: &Host) -> Part {
    let programs = programs.clone();
    let command = move || {
        let mut command = programs.command("etcd");
        command
            .args(["--name", "etcd", "--log-level", "warn"])
            .arg(format!("--data-dir={}", directory().join("etcd").display()))
            .args(["--listen-client-urls", "http://127.0.0.1:2379"])
            .args(["--advertise-client-urls", "http://127.0.0.1:2379"])
            .args(["--listen-peer-urls", "http://127.0.0.1:2380"])
            .args(["--initial-advertise-peer-urls", "http://127.0.0.1:2380"])
            .args(["--initial-cluster", "etcd=http://127.0.0.1:2380"])
            // Without fsync, writes survive the death of a process; only the death of the machine would lose
            // them.
            .arg("--unsafe-no-fsync");
        command
    };
    let ready = answers(host, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 2379));
    Part::new("etcd", host, None, command, ready)
}

fn registry(programs: &Programs, host: &Host) -> anyhow::Result<Part> {
    let configuration = directory().join("registry.json");
    let text = json!({
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": directory().join("registry")}},
        "http": {"addr": REGISTRY_INSIDE},
    });
    fs::write(&configuration, serde_json::to_vec_pretty(&text)?)?;
    let programs = programs.clone();
    let command = move || {
        let mut command = programs.command("registry");
        command
            .arg("serve")
            .arg(&configuration)
            // Otherwise it would send traces to a collector on this host.
            .env("OTEL_TRACES_EXPORTER", "none");
        command
    };
    let ready = answers(host, SocketAddrV4::new(ADDRESS, REGISTRY_PORT));
    Ok(Part::new("registry", host, None, command, ready))
}

fn api_server(programs: &Programs, pki: &Pki, host: &Host) -> Part {
    let kubectl = Kubectl::own(programs, host);
    let programs = programs.clone();
    let pki = pki.clone();
    let command = move || {
        let file = |option: &str, name: &str| format!("--{option}={}", pki.path(name).display());
        let mut command = programs.command("kube-apiserver");
        command
            .args(["--etcd-servers", "http://127.0.0.1:2379"])
            .arg(format!("--advertise-address={ADDRESS}"))
            .arg(format!("--secure-port={}", api_port()))
            .arg(format!("--service-cluster-ip-range={SERVICES}"))
            .arg("--authorization-mode=Node,RBAC")
            .arg("--enable-admission-plugins=NodeRestriction")
            .arg("--allow-privileged=true")
            // The API server reaches services of webhooks at their pods: no kube-proxy runs on this host.
            .arg("--enable-aggregator-routing=true")
            .arg("--kubelet-preferred-address-types=InternalIP")
            .arg(format!("--service-account-issuer={ISSUER}"))
            .arg(file("service-account-signing-key-file", "accounts.key"))
            .arg(file("service-account-key-file", "accounts.pub"))
            .arg(file("token-auth-file", "tokens.csv"))
            .arg(file("client-ca-file", "ca.crt"))
            .arg(file("tls-cert-file", "apiserver.crt"))
            .arg(file("tls-private-key-file", "apiserver.key"))
            .arg(file("admission-control-config-file", ADMISSION))
            .arg(file("kubelet-client-certificate", "apiserver-client.crt"))
            .arg(file("kubelet-client-key", "apiserver-client.key"));
        command
    };
    let ready = move |_| {
        // A request to a server that has just started may hang.
        let asked = kubectl.spawn(&["get", "--raw", "/readyz"]);
        let asked = asked.and_then(|mut process| process.wait(Duration::from_secs(10)));
        matches!(asked, Ok(Some(status)) if status.success())
    };
    Part::new("kube-apiserver", host, None, command, Box::new(ready))
}

fn controller_manager(config: &Config, programs: &Programs, pki: &Pki, host: &Host) -> Part {
    let (programs, pki) = (programs.clone(), pki.clone());
    let grace = config.node_grace;
    let command = move || {
        let mut command = programs.command("kube-controller-manager");
        command
            .arg(format!(
                "--kubeconfig={}",
                pki.kubeconfig("controller-manager").display()
            ))
            .arg("--leader-elect=false")
            .arg("--use-service-account-credentials")
            .arg(format!("--root-ca-file={}", pki.path("ca.crt").display()))
            .arg(format!(
                "--service-account-private-key-file={}",
                pki.path("accounts.key").display()
            ))
            .arg(format!("--node-monitor-grace-period={}s", grace.as_secs()))
            // Kubernetes' default is 5 s of 50 s.
            .arg(format!("--node-monitor-period={}ms", grace.as_millis() / 10));
        command
    };
    let ready = answers(host, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 10257));
    Part::new("kube-controller-manager", host, None, command, ready)
}

fn scheduler(programs: &Programs, pki: &Pki, host: &Host) -> Part {
    let (programs, pki) = (programs.clone(), pki.clone());
    let command = move || {
        let mut command = programs.command("kube-scheduler");
        command
            .arg(format!("--kubeconfig={}", pki.kubeconfig("scheduler").display()))
            .arg("--leader-elect=false");
        command
    };
    let ready = answers(host, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 10259));
    Part::new("kube-scheduler", host, None, command, ready)
}

fn coredns(programs: &Programs, pki: &Pki, host: &Host) -> anyhow::Result<Part> {
    let corefile = directory().join("Corefile");
    let kubeconfig = pki.kubeconfig("coredns");
    fs::write(
        &corefile,
        format!(
            ".:53 {{\n    bind {ADDRESS}\n    errors\n    ready 127.0.0.1:8181\n    \
             kubernetes cluster.local in-addr.arpa {{\n        kubeconfig {}\n        ttl 1\n    }}\n}}\n",
            kubeconfig.display()
        ),
    )?;
    let programs = programs.clone();
    let command = move || {
        let mut command = programs.command("coredns");
        command.arg("-conf").arg(&corefile);
        command
    };
    let ready = answers(host, SocketAddrV4::new(ADDRESS, 53));
    Ok(Part::new("coredns", host, None, command, ready))
}

/// True once a program accepts connections at an address.
pub(crate) fn answers(host: &Host, address: SocketAddrV4) -> Ready {
    let host = host.clone();
    Box::new(move |_: Pid| host.connect(address, Duration::from_secs(1)).is_ok())
}
