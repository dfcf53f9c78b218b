//! Faults of a node, and programs on it.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::control;
use super::layout::NodeLayout;
use super::own::Own;
use crate::Host;

/// A node of a cluster on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(super) cluster: &'a Own,
    pub(super) layout: NodeLayout,
}

impl Node<'_> {
    /// Its name in the cluster.
    pub fn name(&self) -> String {
        self.layout.name()
    }

    pub fn address(&self) -> Ipv4Addr {
        self.layout.address()
    }

    /// The source networks of packets from the node and from its pods.
    pub fn networks(&self) -> [String; 2] {
        [format!("{}/32", self.layout.address()), self.layout.pods()]
    }

    /// Its network namespace, for programs that run on the node.
    pub fn host(&self) -> &Host {
        &self.cluster.nodes[usize::from(self.layout.number) - 1]
    }

    /// Pulls its cable: the node reaches no other host, and no other host reaches it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cut(&self) -> io::Result<()> {
        let cable = self.layout.cable();
        self.cluster.control_plane.ip(&format!("link set {cable} down\n"))
    }

    /// Puts the cable back.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn restore(&self) -> io::Result<()> {
        let cable = self.layout.cable();
        self.cluster.control_plane.ip(&format!("link set {cable} up\n"))
    }

    /// Kills everything on it at once: kubelet, containerd, its shims, and all pods.
    ///
    /// # Errors
    /// When something survives.
    pub fn crash(&self) -> anyhow::Result<()> {
        self.order("crash")
    }

    /// Starts it again after [`Self::crash`], and waits until its programs serve.
    ///
    /// # Errors
    /// When one does not.
    pub fn boot(&self) -> anyhow::Result<()> {
        self.order("boot")
    }

    /// Kills one of its programs: `kubelet`, `containerd` or `kube-proxy`. Pods live on.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn kill(&self, program: &str) -> anyhow::Result<()> {
        control::ask(&format!("kill {}/{program}", self.name()))?;
        Ok(())
    }

    /// Starts one of its programs again, and waits until it serves.
    ///
    /// # Errors
    /// When it does not, or there is no such program.
    pub fn start_again(&self, program: &str) -> anyhow::Result<()> {
        control::ask(&format!("start {}/{program}", self.name()))?;
        Ok(())
    }

    /// Runs a program of this machine on the node: with its network and its mounts.
    ///
    /// # Errors
    /// When the node is down, or the program cannot be started.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
        let pid = control::ask(&format!("pid {}/machine", self.name()))?;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--mount=/proc/{pid}/ns/mnt"))
            .arg("--")
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(self.host().spawn("command", command)?.output()?)
    }

    fn order(&self, verb: &str) -> anyhow::Result<()> {
        control::ask(&format!("{verb} {}", self.name()))?;
        Ok(())
    }
}
