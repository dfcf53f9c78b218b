//! A real Kubernetes cluster on this machine: API server, kubelets, containerd, without a container engine
//! and without third-party images.
//!
//! [`Cluster::start`] makes network namespaces for a control plane and two nodes, and starts in them the
//! programs that [`build`] has built from Go modules. A [`supervisor`] process owns everything, and ends with
//! the [`Cluster`], however that ends. There is one cluster of each [`NUMBER`] per machine, and others of that number
//! wait for it.
//!
//! Tests call [`Cluster::shared`]. `LOCKKEEPER_E2E_KUBECONFIG` names a cluster of the user's own, which is
//! then used instead; functions that need control over its nodes return [`Unsupported`].

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tempfile::NamedTempFile;

use crate::clock::since_boot;
use crate::owner::Owner;
use crate::{Host, Unsupported};

pub mod build;
mod cgroups;
mod cleanup;
mod config;
mod control;
mod control_plane;
mod faults;
mod forward;
mod images;
mod kubectl;
mod launch;
mod layout;
mod namespace;
mod network;
mod node;
mod own;
mod part;
mod pki;
pub mod supervisor;
mod version;

use build::Programs;
pub use cleanup::{sweep, traces};
pub use config::Config;
pub use faults::Node;
pub use images::REGISTRY;
use images::Registry;
use kubectl::Kubectl;
use launch::{Supervisor, can_start};
pub(crate) use layout::find_program;
pub use layout::{
    NUMBER, NodeLayout, REGISTRY_INSIDE, control_plane, directory, kubeconfig, kubernetes_networks,
    registry_port_outside,
};
pub use namespace::Namespace;
use own::Own;
pub use version::VERSION;

/// Names the kubeconfig of a cluster of the user's own, for the tests.
pub(crate) const FOREIGN: &str = "LOCKKEEPER_E2E_KUBECONFIG";

/// A cluster of this machine, or of the user's own.
#[derive(Debug)]
pub struct Cluster {
    kubectl: Kubectl,
    own: Option<Own>,
}

impl Cluster {
    /// The cluster of all tests of this process: the user's own, or one that `lockkeeper-cluster up` has left
    /// running, or a new one, which ends with this process. `None` where no cluster can run: then this
    /// function has printed why, and the test is skipped.
    ///
    /// # Panics
    /// When a cluster can run here, but does not start.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Result<Cluster, Unsupported>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| {
            let cluster = if let Some(kubeconfig) = std::env::var_os(FOREIGN) {
                Self::foreign(PathBuf::from(kubeconfig))
            } else {
                can_start()?;
                Self::running().or_else(|_| Self::start(&Config::for_tests()))
            };
            Ok(cluster.expect("the cluster starts"))
        });
        match shared {
            Ok(cluster) => Some(cluster),
            Err(reason) => {
                lockkeeper_skip::skip(reason);
                None
            }
        }
    }

    /// A cluster of a test's own ([`Self::start`]); `None` where no cluster can run: then the test is skipped.
    ///
    /// # Panics
    /// When a cluster can run here, but does not start.
    pub fn start_or_skip(config: &Config) -> Option<Self> {
        Unsupported::or_skip(Self::start(config))
    }

    /// Starts a cluster that ends with this value, or with this process.
    ///
    /// # Errors
    /// When something does not start, with the end of its log; [`Unsupported`] where no cluster can run.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        can_start()?;
        if Self::running().is_ok() {
            return Err(Unsupported::new(
                "a cluster has been left running on this machine; `make cluster-down` ends it",
            )
            .into());
        }
        let supervisor = Supervisor::start(config, false)?;
        Self::attach(config.nodes, Some(supervisor))
    }

    /// Starts a cluster that runs until [`Cluster::stop_running`].
    ///
    /// # Errors
    /// When something does not start, or one is running already.
    pub fn leave_running(config: &Config) -> anyhow::Result<Self> {
        can_start()?;
        let supervisor = Supervisor::start(config, true)?;
        Self::attach(config.nodes, Some(supervisor))
    }

    /// The cluster that was left running.
    ///
    /// # Errors
    /// When there is none.
    pub fn running() -> anyhow::Result<Self> {
        let holder = fs::read_to_string(layout::lock()).unwrap_or_default();
        ensure!(
            holder.contains(supervisor::DETACHED),
            "no cluster has been left running"
        );
        let parts = control::ask("parts")?;
        let nodes = parts.split(' ').filter(|part| part.ends_with("/machine")).count();
        Self::attach(u8::try_from(nodes)?, None)
    }

    /// Ends a cluster that was left running, and removes the remains of any cluster without a supervisor.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn stop_running() -> anyhow::Result<()> {
        let path = layout::lock();
        let lock = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        if lock.try_lock().is_err() {
            // The supervisor answers by ending, or has just ended for another reason.
            let _ = control::ask("stop");
            lock.lock()?;
        }
        sweep()
    }

    fn foreign(kubeconfig: PathBuf) -> anyhow::Result<Self> {
        ensure!(
            kubeconfig.exists(),
            "{FOREIGN} is {}, and there is no such file",
            kubeconfig.display()
        );
        let kubectl = Kubectl {
            program: PathBuf::from("kubectl"),
            kubeconfig,
            host: None,
        };
        Ok(Self { kubectl, own: None })
    }

    fn attach(nodes: u8, supervisor: Option<Supervisor>) -> anyhow::Result<Self> {
        let programs = Programs::found()?;
        let (control_plane, nodes) = network::existing(nodes, &Owner::new())?;
        Ok(Self {
            kubectl: Kubectl::own(&programs, &control_plane),
            own: Some(Own {
                programs,
                control_plane,
                nodes,
                supervisor,
            }),
        })
    }

    /// The administrator's kubeconfig, good on this machine and in the control plane's namespace.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubectl.kubeconfig
    }

    /// Certificate (PEM) of the authority of a cluster of ours. The API server shows webhooks a certificate
    /// of this authority, with the common name `kube-apiserver`.
    pub fn authority(&self) -> PathBuf {
        directory().join("pki/ca.crt")
    }

    /// Runs `kubectl`, and returns its output.
    ///
    /// # Errors
    /// When it fails, with its message.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.kubectl.run(arguments)
    }

    /// Creates or changes what a manifest describes.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        let file = NamedTempFile::new()?;
        fs::write(file.path(), manifest)?;
        let path = file.path().to_str().context("the path is not UTF-8")?;
        self.kubectl(&["apply", "--filename", path])?;
        Ok(())
    }

    /// Runs `kubectl` until its output satisfies a condition, at most for `bound`, and returns that output.
    ///
    /// # Errors
    /// When that does not happen in time, with the last output.
    pub fn wait_for(
        &self,
        bound: Duration,
        arguments: &[&str],
        pleases: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        /// A call of `kubectl` takes a tenth of a second of a processor, and many tests wait at once: most of a loaded
        /// machine's time would go into asking.
        const POLL: Duration = Duration::from_millis(500);
        let end = since_boot() + bound;
        loop {
            let asked = since_boot();
            let answer = self.kubectl(arguments);
            match answer {
                Ok(text) if pleases(&text) => return Ok(text),
                other if since_boot() >= end => {
                    let last = other.unwrap_or_else(|error| format!("{error:#}"));
                    bail!(
                        "after {bound:?} kubectl {} still says: {last}",
                        arguments.join(" ")
                    )
                }
                _ => std::thread::sleep(POLL.max(2 * since_boot().saturating_sub(asked))),
            }
        }
    }

    /// Builds the Dockerfile in `folder` (which may use files in that folder, but not the network), up to
    /// `stage` if there is one, and pushes the image. Returns the name by which pods use it. `name` has a new
    /// tag: nodes do not look for a newer image under a tag that they know.
    ///
    /// # Errors
    /// When it cannot be built, or there is no registry: [`Unsupported`].
    pub fn push_image(&self, name: &str, folder: &Path, stage: Option<&str>) -> anyhow::Result<String> {
        self.registry()?.push(name, folder, stage)
    }

    /// The same for an image that contains only one static program, and runs it.
    ///
    /// # Errors
    /// As [`Self::push_image`].
    pub fn push_program(&self, name: &str, program: &Path) -> anyhow::Result<String> {
        self.registry()?.push_program(name, program)
    }

    /// The host of the control plane, for programs beside the cluster that pods can reach.
    pub fn control_plane(&self) -> Result<&Host, Unsupported> {
        Ok(&self.own()?.control_plane)
    }

    /// Makes an address of this machine reachable in the control plane's namespace, such as an ensemble for
    /// an operator there, for as long as this process lives. Returns the address there.
    ///
    /// # Errors
    /// When it cannot listen there, or it is a cluster of the user's own.
    pub fn lead_out(&self, to: SocketAddrV4) -> anyhow::Result<SocketAddrV4> {
        forward::lead_out(&self.own()?.control_plane, to)
    }

    /// A node, counted from 1.
    ///
    /// # Errors
    /// When the node is of a cluster of the user's own.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn node(&self, number: u8) -> Result<Node<'_>, Unsupported> {
        let cluster = self.own()?;
        assert!(
            (1..=cluster.nodes.len()).contains(&usize::from(number)),
            "no node {number}"
        );
        let layout = NodeLayout { number };
        Ok(Node { cluster, layout })
    }

    /// Kills a program of the control plane, such as `kube-apiserver`.
    ///
    /// # Errors
    /// When there is no such program, or it is a cluster of the user's own.
    pub fn kill(&self, part: &str) -> anyhow::Result<()> {
        self.own()?;
        control::ask(&format!("kill {part}"))?;
        Ok(())
    }

    /// Starts a program of the control plane again, and waits until it serves.
    ///
    /// # Errors
    /// As [`Self::kill`], and when it does not start.
    pub fn start_again(&self, part: &str) -> anyhow::Result<()> {
        self.own()?;
        control::ask(&format!("start {part}"))?;
        Ok(())
    }

    /// The program of the cluster with this name, such as `helm`: see [`build`].
    ///
    /// # Errors
    /// When it is a cluster of the user's own: the user has such programs.
    pub fn program(&self, name: &str) -> Result<PathBuf, Unsupported> {
        Ok(self.own()?.programs.path(name))
    }

    /// The process that owns everything of this cluster; `None` unless this value has started it.
    pub fn supervisor(&self) -> Option<u32> {
        self.own.as_ref()?.supervisor.as_ref().map(Supervisor::pid)
    }

    fn registry(&self) -> Result<Registry, Unsupported> {
        match &self.own {
            Some(own) => Registry::own(&own.control_plane),
            None => Registry::foreign(),
        }
    }

    fn own(&self) -> Result<&Own, Unsupported> {
        let missing = || {
            Unsupported::new(format!(
                "{FOREIGN} names a cluster whose nodes are not ours to break"
            ))
        };
        self.own.as_ref().ok_or_else(missing)
    }
}
