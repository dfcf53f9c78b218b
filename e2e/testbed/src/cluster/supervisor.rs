//! The process that owns a cluster: it starts everything, carries out orders, and ends everything.
//!
//! It is a process of its own, in no terminal's group: it outlives a panic, a Ctrl-C and a `kill -9` of the
//! process that started it, and then cleans up. Its children die with it. After a `kill -9` of the supervisor
//! itself, the next one removes the remains.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use rustix::process::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::build::Programs;
use super::cleanup::{hold_mount_points, sweep};
use super::config::Config;
use super::control::{self, Order};
use super::forward::forward;
use super::images::Registry;
use super::kubectl::Kubectl;
use super::layout::{self, ADDRESS, NodeLayout, REGISTRY_PORT};
use super::part::{self, Part};
use super::pki::Pki;
use super::{cgroups, control_plane, network, node};
use crate::owner::Owner;

/// How soon an end is noticed.
const POLL: Duration = Duration::from_millis(50);
/// A detached supervisor writes this into the lock file.
pub(crate) const DETACHED: &str = "left running";

/// Runs a cluster until standard input ends, or, when `detached`, until a signal or an order to stop.
///
/// Standard output reports to the parent process: `progress …`, then `ready` or `error …`.
///
/// # Errors
/// When something of the cluster cannot be removed at the end.
pub fn run(config: &Config, detached: bool) -> anyhow::Result<()> {
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&over))?;
    }
    if !detached {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            // An unreadable standard input counts as ended.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            over.store(true, Ordering::Relaxed);
        });
    }
    let result = lock(detached, &over).and_then(|lock| {
        let supervisor = Supervisor::start(config)?;
        Ok((lock, supervisor))
    });
    // `_lock` is released last, also after a panic: by then everything else is removed.
    let (_lock, mut supervisor) = match result {
        Ok(both) => both,
        Err(error) => {
            tell("error", &format!("{error:#}"));
            return Err(error);
        }
    };
    tell("ready", "");
    supervisor.serve(&over);
    supervisor.stop()
}

struct Supervisor {
    owner: Owner,
    /// In the order of their start.
    parts: Vec<Part>,
    orders: Receiver<Order>,
    log: File,
    /// Keeps the places where nodes mount something.
    mount_points: Option<File>,
    /// Set by [`Supervisor::stop`]. Until then Drop does the same: after a failed start, or a panic.
    stopped: bool,
}

impl Supervisor {
    fn start(config: &Config) -> anyhow::Result<Self> {
        let programs = Programs::found()?;
        sweep().context("cannot remove what an earlier cluster has left")?;
        let mount_points = hold_mount_points()?;
        let directory = layout::directory();
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let mut supervisor = Self {
            log: File::create(layout::log())?,
            mount_points: Some(mount_points),
            owner: Owner::new(),
            parts: Vec::new(),
            orders: control::listen()?,
            stopped: false,
        };
        let pki = Pki::create(&directory.join("pki"), config.nodes)?;
        pki.write_outside_kubeconfig(&layout::kubeconfig())?;
        let (host, node_hosts) = network::create(config.nodes, &supervisor.owner)?;
        let api_port = layout::api_port();
        forward(api_port, &host, SocketAddrV4::new(ADDRESS, api_port))?;
        forward(
            layout::registry_port_outside(),
            &host,
            SocketAddrV4::new(ADDRESS, REGISTRY_PORT),
        )?;

        supervisor.parts = control_plane::parts(config, &programs, &pki, &host)?;
        supervisor.start_part("etcd")?;
        supervisor.start_part("registry")?;
        supervisor.launch_part("kube-apiserver")?;
        Registry::own(&host)?.push_program("lockkeeper/pause:1", &programs.path("pause"))?;
        supervisor.start_part("kube-apiserver")?;
        tell("progress", "the API server is ready");
        let kubectl = Kubectl::own(&programs, &host);
        let manifests = directory.join("manifests.yaml");
        control_plane::write_manifests(&manifests)?;
        kubectl.run(&["apply", "--filename", manifests.to_str().context("not UTF-8")?])?;
        for name in ["kube-controller-manager", "kube-scheduler", "coredns"] {
            supervisor.launch_part(name)?;
        }
        for (layout, node_host) in NodeLayout::all(config.nodes).zip(&node_hosts) {
            cgroups::create(layout)?;
            supervisor
                .parts
                .extend(node::parts(config, &programs, &pki, layout, node_host)?);
            supervisor.boot(layout)?;
        }
        for index in 0..supervisor.parts.len() {
            supervisor.parts[index].wait_until_ready()?;
        }
        let statuses = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        part::wait_until("all nodes are Ready", || {
            let statuses = kubectl.run(&["get", "nodes", "--output", statuses])?;
            Ok(statuses
                .split_whitespace()
                .filter(|&status| status == "True")
                .count()
                == usize::from(config.nodes))
        })?;
        // Without it the API server accepts no pod.
        part::wait_until("the default service account is there", || {
            let account = [
                "get",
                "serviceaccounts",
                "--field-selector=metadata.name=default",
                "--output=name",
            ];
            Ok(!kubectl.run(&account)?.is_empty())
        })?;
        Ok(supervisor)
    }

    /// Carries out orders until there is one to stop, or until `over` is set.
    fn serve(&mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            for part in &mut self.parts {
                if part.has_ended() {
                    note(&mut self.log, &format!("{} has ended by itself", part.name()));
                }
            }
            match self.orders.recv_timeout(POLL) {
                Ok(order) if order.line == "stop" => {
                    // The end of this process is the answer, when everything is removed.
                    return;
                }
                Ok(order) => {
                    let result = self.carry_out(&order.line);
                    note(&mut self.log, &format!("{}: {result:?}", order.line));
                    order.answer(result);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn carry_out(&mut self, line: &str) -> anyhow::Result<String> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["parts"] => {
                let names: Vec<_> = self.parts.iter().map(Part::name).collect();
                return Ok(names.join(" "));
            }
            ["pid", part] => {
                let pid = self.part(part)?.pid();
                let pid = pid.ok_or_else(|| anyhow!("{part} does not run"))?;
                return Ok(pid.as_raw_pid().to_string());
            }
            ["kill", part] => self.part(part)?.kill(),
            ["start", part] => self.start_part(part)?,
            ["crash", node] => self.crash(self.node(node)?)?,
            ["boot", node] => self.boot(self.node(node)?)?,
            _ => bail!(
                "{line:?} is no order; there are: parts, pid PART, kill PART, start PART, crash NODE, boot NODE, stop"
            ),
        }
        Ok(String::new())
    }

    /// Starts all programs of a node that do not run.
    fn boot(&mut self, node: NodeLayout) -> anyhow::Result<()> {
        for name in self.names_of(node) {
            self.start_part(&name)?;
        }
        Ok(())
    }

    /// Kills all that runs on a node, its pods included.
    fn crash(&mut self, node: NodeLayout) -> anyhow::Result<()> {
        cgroups::kill(node)?;
        for part in &mut self.parts {
            if part.node() == Some(node) {
                part.kill();
            }
        }
        Ok(())
    }

    fn start_part(&mut self, name: &str) -> anyhow::Result<()> {
        self.launch_part(name)?;
        self.part(name)?.wait_until_ready()
    }

    fn launch_part(&mut self, name: &str) -> anyhow::Result<()> {
        let machine = self.machine_of(name)?;
        self.part(name)?.start(machine)
    }

    /// The process in whose mounts a node's program runs; `None` for the first one, which stands for the
    /// machine.
    fn machine_of(&mut self, name: &str) -> anyhow::Result<Option<Pid>> {
        match name.split_once('/') {
            None | Some((_, "machine")) => Ok(None),
            Some((node, _)) => {
                let pid = self.part(&format!("{node}/machine"))?.pid();
                pid.map(Some)
                    .ok_or_else(|| anyhow!("{node} is down: {name} cannot run before `boot {node}`"))
            }
        }
    }

    fn part(&mut self, name: &str) -> anyhow::Result<&mut Part> {
        let found = self.parts.iter_mut().find(|part| part.name() == name);
        found.ok_or_else(|| anyhow!("{name} is no part of the cluster; `parts` lists them"))
    }

    fn node(&self, name: &str) -> anyhow::Result<NodeLayout> {
        let mut nodes = self.parts.iter().filter_map(Part::node);
        nodes
            .find(|node| node.name() == name)
            .ok_or_else(|| anyhow!("{name} is no node of the cluster"))
    }

    fn names_of(&self, node: NodeLayout) -> Vec<String> {
        let parts = self.parts.iter().filter(|part| part.node() == Some(node));
        parts.map(|part| part.name().to_owned()).collect()
    }

    /// Ends everything, in the reverse order of its start, and removes every trace.
    fn stop(&mut self) -> anyhow::Result<()> {
        self.stopped = true;
        for node in cgroups::nodes().into_iter().rev() {
            self.crash(node)?;
        }
        // Kill them: what they would write in an orderly end is not needed.
        for part in self.parts.iter_mut().rev() {
            part.kill();
        }
        self.owner.kill_all();
        self.mount_points = None;
        sweep()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if !self.stopped
            && let Err(error) = self.stop()
        {
            eprintln!("{error:#}");
        }
    }
}

/// There is one cluster of a number per machine: this waits until another one is gone.
fn lock(detached: bool, over: &AtomicBool) -> anyhow::Result<File> {
    let path = layout::lock();
    let mut file = File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the cluster"),
            Err(TryLockError::WouldBlock) => {}
        }
        let holder = fs::read_to_string(&path)?;
        ensure!(
            !holder.contains(DETACHED),
            "a cluster is running already ({}); end it with `lockkeeper-cluster down`",
            holder.trim()
        );
        if !told {
            tell(
                "progress",
                &format!("waiting for another cluster to end ({})", holder.trim()),
            );
            told = true;
        }
        ensure!(
            !over.load(Ordering::Relaxed),
            "nobody waits for the cluster any more"
        );
        thread::sleep(POLL);
    }
    file.set_len(0)?;
    let kind = if detached { DETACHED } else { "of tests" };
    writeln!(file, "process {}, {kind}", std::process::id())?;
    Ok(file)
}

/// Writes to the log for users; nothing depends on it.
fn note(log: &mut File, text: &str) {
    let _ = writeln!(log, "{text}");
}

/// The parent process may not read any more.
fn tell(word: &str, text: &str) {
    let line = format!("{word} {}\n", text.replace('\n', "\t"));
    let _ = io::stdout().write_all(line.as_bytes());
    let _ = io::stdout().flush();
}
