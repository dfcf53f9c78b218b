//! The processes of another container of the same pod, found through `/proc`.
//!
//! The kubelet bind-mounts a file of its own at `terminationMessagePath` of every container; the
//! source of that mount, the root field of the line in `/proc/PID/mountinfo`, ends in
//! `pods/<uid>/containers/<name>/<id>`. That line is readable across users without a capability.
//!
//! A process that gives itself another mount namespace without that file is not found; a container
//! needs a capability to do that. Signals need the same user or CAP_KILL.

mod mountinfo;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use lockkeeper_lock::FencingToken;
use rustix::process::{Pid, WaitOptions};

use self::mountinfo::MountInfo;
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
    /// `Started` is still to be told.
    started: bool,
}

impl Container {
    /// The container `name`, which has its termination log at `log`.
    pub fn new(name: &str, log: &str) -> io::Result<Self> {
        let processes = Processes::open()?;
        let mut mountinfo = MountInfo::new(name, log);
        let own = std::fs::File::open("/proc/self/mountinfo").map(OwnedFd::from)?;
        mountinfo.restrict_to_pod_of(&own);
        Ok(Self {
            processes,
            mountinfo,
            started: false,
        })
    }

    fn mark(&mut self) {
        let mountinfo = &mut self.mountinfo;
        self.processes.scan();
        self.processes
            .mark(|proc, process| belongs(mountinfo, proc, process.pid));
    }
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
        sweep_marked(&self.processes, sweep)
    }

    fn reap(&mut self) {
        // The keeper may be a child of the guard.
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    }

    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [None, None]
    }

    fn news(&mut self) -> Option<Event> {
        std::mem::take(&mut self.started).then_some(Event::Started { pid: 0 })
    }
}
