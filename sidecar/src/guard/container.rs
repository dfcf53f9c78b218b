//! The processes of another container of the same pod, found through `/proc`.
//!
//! The kubelet bind-mounts a file of its own at `terminationMessagePath` of every container; the
//! source of that mount, the root field of the line in `/proc/PID/mountinfo`, ends in
//! `pods/<uid>/containers/<name>/<id>`. That line is readable across users without a capability.
//!
//! A process that gives itself another mount namespace without that file is not found; a container
//! needs a capability to do that. Signals need the same user or CAP_KILL.

mod mountinfo;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lockkeeper_lock::FencingToken;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, WaitOptions};

use self::mountinfo::MountInfo;
use super::options::TargetKind;
use super::processes::{PATH_BUFFER, Processes, open_in};
use super::schedule::{Event, Mode, Sight, Sweep};
use super::target::{Target, sweep_marked};

/// Where the kubelet mounts it unless the container says otherwise.
pub const DEFAULT_TERMINATION_LOG: &str = "/dev/termination-log";

/// One container, by its name.
#[derive(Debug)]
pub(super) struct Container {
    processes: Processes,
    mountinfo: MountInfo,
    lease_file: CString,
    /// `Started` is still to be told.
    started: bool,
    /// One of its processes, whose end is a moment to look whether any is left.
    witness: Option<OwnedFd>,
}

impl Container {
    /// The container `name`, which has its termination log at `log` and starts by `lease_file`.
    pub fn new(name: &str, log: &str, lease_file: &Path) -> io::Result<Self> {
        let processes = Processes::open()?;
        let mut mountinfo = MountInfo::new(name, log);
        let own = std::fs::File::open("/proc/self/mountinfo").map(OwnedFd::from)?;
        mountinfo.restrict_to_pod_of(&own);
        Ok(Self {
            processes,
            mountinfo,
            lease_file: CString::new(lease_file.as_os_str().as_bytes())?,
            started: false,
            witness: None,
        })
    }

    fn mark(&mut self) {
        let mountinfo = &mut self.mountinfo;
        self.processes.scan();
        self.processes
            .mark(|proc, process| belongs(mountinfo, proc, process.pid));
    }
}

/// Kills a container in place of a guard that was killed itself.
#[derive(Debug)]
pub struct ContainerKiller(Container);

impl ContainerKiller {
    /// For the container of a guard; sets the memory aside that [`ContainerKiller::kill`] needs.
    ///
    /// # Errors
    /// When the target is no container, or its processes could not be found in `/proc`.
    pub fn new(target: &TargetKind) -> io::Result<Self> {
        match target {
            TargetKind::Container {
                name,
                termination_log,
                lease_file,
            } => Container::new(name, termination_log, lease_file).map(Self),
            _ => Err(io::Error::other("only a container is killed from beside")),
        }
    }

    /// SIGKILL to all that is there; true when there was nothing.
    pub fn kill(&mut self) -> bool {
        !self.0.sweep(Sweep::Kill).alive
    }
}

/// Whether the process behind a descriptor has ended: it becomes readable then.
fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

fn belongs(mountinfo: &mut MountInfo, proc: &OwnedFd, pid: Pid) -> bool {
    let mut path = [0; PATH_BUFFER];
    open_in(proc, pid, "mountinfo", &mut path).is_some_and(|file| mountinfo.matches(&file))
}

impl Target for Container {
    fn mode(&self) -> Mode {
        Mode::Container
    }

    fn start(&mut self, _: FencingToken) -> io::Result<()> {
        // The kubelet starts it; the guard only stops killing what appears.
        self.started = true;
        Ok(())
    }

    fn remove_lease(&mut self) {
        // It is mostly gone already: the keeper does the same.
        let _ = rustix::fs::unlink(&self.lease_file);
    }

    /// The main processes are those whose parent is not of the container.
    fn signal_main(&mut self, signo: u8) {
        let Some(signal) = rustix::process::Signal::from_named_raw(signo.into()) else {
            return;
        };
        self.mark();
        for process in self.processes.guarded() {
            let is_child =
                |other: &super::processes::Process| other.pid.as_raw_nonzero().get() == process.parent;
            if !self.processes.guarded().any(is_child) {
                let _ = self.processes.signal(process, signal);
            }
        }
    }

    fn sweep(&mut self, sweep: Sweep) -> Sight {
        self.mark();
        if self.witness.is_none() {
            let mut found = self.processes.guarded();
            self.witness =
                found.find_map(|process| rustix::process::pidfd_open(process.pid, PidfdFlags::empty()).ok());
        }
        sweep_marked(&self.processes, sweep)
    }

    fn reap(&mut self) {
        // The keeper may be a child of the guard.
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    }

    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.witness.as_ref().map(AsFd::as_fd), None]
    }

    fn news(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.started) {
            return Some(Event::Started { pid: 0 });
        }
        self.witness
            .take_if(|witness| has_ended(witness))
            .map(|_| Event::ChildEnded)
    }
}
