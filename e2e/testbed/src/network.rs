//! Simulated machines: a network namespace per host, a router between them, and cuts.
//!
//! Each [`Host`] has one address and one cable, to a namespace that routes between all of them. Cutting two
//! hosts off from one another is two policy rules in the router (`ip rule … blackhole`): packets vanish
//! without an answer, as behind a broken switch. This needs only the kernel's routing, no netfilter.
//!
//! The namespaces have no names: they end with the harness and the processes in them, and any number
//! of networks can have the same addresses side by side. To look inside one, use
//! `nsenter --net=/proc/PID/ns/net` with the id of a process in it.
//!
//! Without the right to make namespaces the hosts are addresses of the loopback device. There everything
//! works except cuts, which return [`Unsupported`].

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::LinkNameSpaceType;

use crate::owner::{MARK, Owner};
use crate::process::Namespaces;
use crate::sys;
use crate::{Process, Unsupported};

mod join;
mod names;
mod processes;

const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 99, 255, 254);
const REEXECUTED: &str = "LOCKKEEPER_E2E_IN_USER_NAMESPACE";

/// Hosts that can reach one another, until they are cut.
#[derive(Debug)]
pub struct Network {
    owner: Owner,
    kind: Kind,
    hosts: AtomicU32,
    /// How many faults have cut a pair of hosts: if two overlap, the pair is connected again when both have
    /// ended.
    cuts: Mutex<HashMap<(Ipv4Addr, Ipv4Addr), u32>>,
}

#[derive(Debug)]
enum Kind {
    Namespaces { router: Arc<File> },
    Loopback { block: [u8; 2], reason: String },
}

/// A machine of a [`Network`].
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    namespace: Option<Arc<File>>,
    mark: String,
}

impl Network {
    /// A network of namespaces, or of loopback addresses where the kernel forbids them.
    ///
    /// A process that is not root may be replaced: it starts again, with the same arguments, as root of a
    /// user namespace. So call this early.
    pub fn new(owner: &Owner) -> io::Result<Self> {
        become_root_of_a_user_namespace();
        match Self::namespaces(owner) {
            Ok(network) => Ok(network),
            Err(error) => Self::loopback(owner, &error.to_string()),
        }
    }

    /// A network of loopback addresses, in which nothing can be cut because of `reason`.
    pub fn loopback(owner: &Owner, reason: &str) -> io::Result<Self> {
        let block = free_loopback_block()?;
        let kind = Kind::Loopback {
            block,
            reason: reason.to_owned(),
        };
        Ok(Self {
            owner: owner.clone(),
            kind,
            hosts: AtomicU32::new(0),
            cuts: Mutex::default(),
        })
    }

    fn namespaces(owner: &Owner) -> io::Result<Self> {
        let router = new_namespace()?;
        ip(&router, &format!("link set lo up\naddr add {ROUTER}/32 dev lo\n"))?;
        inside(Some(&router), || fs::write("/proc/sys/net/ipv4/ip_forward", "1"))?
            .map_err(|error| io::Error::new(error.kind(), format!("cannot switch on routing: {error}")))?;
        let kind = Kind::Namespaces { router };
        Ok(Self {
            owner: owner.clone(),
            kind,
            hosts: AtomicU32::new(0),
            cuts: Mutex::default(),
        })
    }

    /// Checks that connections can be cut here; the error says why not.
    pub fn can_cut(&self) -> Result<(), Unsupported> {
        match &self.kind {
            Kind::Namespaces { .. } => Ok(()),
            Kind::Loopback { reason, .. } => Err(Unsupported::new(format!(
                "connections cannot be cut, since there are no network namespaces: {reason}"
            ))),
        }
    }

    /// A new host, reachable from all others.
    ///
    /// # Errors
    /// When the kernel refuses, or after 255 hosts.
    pub fn host(&self, name: impl Into<String>) -> io::Result<Host> {
        let number = u8::try_from(self.hosts.fetch_add(1, Ordering::Relaxed) + 1)
            .map_err(|_| io::Error::other("a network has at most 255 hosts"))?;
        let (address, namespace) = match &self.kind {
            Kind::Loopback { block: [a, b], .. } => (Ipv4Addr::new(127, *a, *b, number), None),
            Kind::Namespaces { router } => {
                let address = Ipv4Addr::new(10, 99, 0, number);
                (address, Some(plug_in(router, number, address)?))
            }
        };
        Ok(Host {
            name: name.into(),
            address,
            namespace,
            mark: self.owner.mark(),
        })
    }

    /// Drops every packet between two hosts, in both directions, from now on.
    pub fn cut(&self, a: &Host, b: &Host) -> Result<(), Unsupported> {
        self.can_cut()?;
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = cuts.entry(pair(a, b)).or_insert(0);
        if *count == 0 {
            self.rule("add", a, b)?;
        }
        *count += 1;
        Ok(())
    }

    /// Reverts one [`Network::cut`] of these two; does nothing when there is none.
    pub fn heal(&self, a: &Host, b: &Host) -> Result<(), Unsupported> {
        self.can_cut()?;
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = cuts.get_mut(&pair(a, b)) else {
            return Ok(());
        };
        *count -= 1;
        if *count == 0 {
            cuts.remove(&pair(a, b));
            self.rule("del", a, b)?;
        }
        Ok(())
    }

    fn rule(&self, verb: &str, a: &Host, b: &Host) -> Result<(), Unsupported> {
        let Kind::Namespaces { router } = &self.kind else {
            return self.can_cut();
        };
        let (a, b) = (a.address, b.address);
        ip(
            router,
            &format!("rule {verb} from {a} to {b} blackhole\nrule {verb} from {b} to {a} blackhole\n"),
        )
        .map_err(|error| Unsupported::new(error.to_string()))
    }
}

impl Host {
    /// A host that already exists: a named network namespace.
    pub(crate) fn in_namespace(name: &str, address: Ipv4Addr, owner: &Owner) -> io::Result<Self> {
        let namespace = File::open(Path::new("/run/netns").join(name))?;
        Ok(Self {
            name: name.to_owned(),
            address,
            namespace: Some(Arc::new(namespace)),
            mark: owner.mark(),
        })
    }

    /// Runs lines of `ip -batch` on this host.
    pub(crate) fn ip(&self, lines: &str) -> io::Result<()> {
        let namespace = self.namespace.as_ref();
        ip(
            namespace.ok_or_else(|| io::Error::other("a loopback host has no network of its own"))?,
            lines,
        )
    }

    /// Its name in the harness.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Starts a program on this host. It dies with the harness.
    pub fn spawn(&self, name: impl Into<String>, command: Command) -> io::Result<Process> {
        self.spawn_in(name, command, None)
    }

    /// The same in the PID namespace of a process. Only there the program sees what is in that namespace alone, and only
    /// if it mounts another `/proc`.
    pub fn spawn_beside(
        &self,
        process: Pid,
        name: impl Into<String>,
        command: Command,
    ) -> io::Result<Process> {
        let pids = File::open(format!("/proc/{process}/ns/pid"))?;
        self.spawn_in(name, command, Some(pids.into()))
    }

    fn spawn_in(
        &self,
        name: impl Into<String>,
        mut command: Command,
        pids: Option<Arc<File>>,
    ) -> io::Result<Process> {
        command.env(MARK, &self.mark);
        let network = self.namespace.clone();
        Process::spawn_in(name, command, Namespaces { network, pids })
    }

    /// Runs `work` on a thread of its own on this host: the sockets that it opens stay on that host.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        inside(self.namespace.as_ref(), work)
    }

    /// Connects from this host.
    pub fn connect(&self, to: SocketAddrV4, timeout: Duration) -> io::Result<TcpStream> {
        self.run(|| TcpStream::connect_timeout(&to.into(), timeout))?
    }
}

fn pair(a: &Host, b: &Host) -> (Ipv4Addr, Ipv4Addr) {
    (a.address.min(b.address), a.address.max(b.address))
}

/// A cable from a new namespace to the router, with /32 addresses and routes on both ends.
fn plug_in(router: &Arc<File>, number: u8, address: Ipv4Addr) -> io::Result<Arc<File>> {
    let namespace = new_namespace()?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
    ip(
        router,
        &format!("link add v{number} type veth peer name eth0 netns {path}\n"),
    )?;
    ip(
        &namespace,
        &format!(
            "link set lo up\naddr add {address}/32 dev eth0\nlink set eth0 up\n\
             route add {ROUTER} dev eth0 scope link\nroute add default via {ROUTER} src {address}\n"
        ),
    )?;
    ip(
        router,
        &format!("link set v{number} up\nroute add {address}/32 dev v{number}\n"),
    )?;
    Ok(namespace)
}

fn new_namespace() -> io::Result<Arc<File>> {
    let file = std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            sys::unshare_network().map_err(|error| {
                io::Error::new(error.kind(), format!("cannot make a network namespace: {error}"))
            })?;
            File::open("/proc/thread-self/ns/net")
        });
        made.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(Arc::new(file))
}

fn inside<T: Send>(namespace: Option<&Arc<File>>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(namespace) = namespace {
                let kind = Some(LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?;
            }
            Ok(work())
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs lines of `ip -batch` in a namespace.
fn ip(namespace: &Arc<File>, lines: &str) -> io::Result<()> {
    let mut command = Command::new("ip");
    command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let namespaces = Namespaces {
        network: Some(Arc::clone(namespace)),
        pids: None,
    };
    let mut process = Process::spawn_in("ip", command, namespaces)?;
    let child = process.child_mut();
    let mut input = child.stdin.take().expect("the command has a pipe");
    input.write_all(lines.as_bytes())?;
    drop(input);
    let mut complaint = String::new();
    if let Some(errors) = &mut child.stderr {
        io::Read::read_to_string(errors, &mut complaint)?;
    }
    if child.wait()?.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "ip: {} (in \"{}\")",
        complaint.trim(),
        lines.trim()
    )))
}

/// The addresses are 127.a.b.1 and up. Another harness uses another block: a process that listens on the
/// ZooKeeper port of the first address owns the block.
fn free_loopback_block() -> io::Result<[u8; 2]> {
    let mut random = fastrand::Rng::new();
    for _ in 0..100 {
        let block = [random.u8(1..=254), random.u8(..)];
        if TcpListener::bind((Ipv4Addr::new(127, block[0], block[1], 1), 2181)).is_ok() {
            return Ok(block);
        }
    }
    Err(io::Error::other(
        "no free block of loopback addresses was found in 100 tries",
    ))
}

/// Starts this program again as root of a user namespace, if it is not root, the kernel allows that, and it
/// has not done so before. Otherwise it returns.
///
/// A process with threads cannot enter a user namespace; a new process can.
fn become_root_of_a_user_namespace() {
    if rustix::process::geteuid().is_root() || std::env::var_os(REEXECUTED).is_some() {
        return;
    }
    let mut probe = Command::new("unshare");
    probe
        .args(["--user", "--map-root-user", "--net", "true"])
        .stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        // This returns only if it fails. Then there are no namespaces, and the caller reports that.
        let _ = Command::new("unshare")
            .args(["--user", "--map-root-user", "--"])
            .arg(program)
            .args(std::env::args_os().skip(1))
            .env(REEXECUTED, "1")
            .exec();
    }
}
