//! The processes of another container of the same pod, found through `/proc`: see [`membership`].
//!
//! Signals need the same user or CAP_KILL.

mod groups;
mod membership;

#[cfg(feature = "fuzzing")]
pub(super) use self::{groups::Groups, membership::pod_and_container};

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use lockkeeper_lock::FencingToken;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, WaitOptions};

use self::membership::Membership;
use super::kill::{found_marked, sweep_twice};
use super::processes::{Process, Processes};
use super::schedule::{Event, Mode, Sight, Sweep};
use super::target::Target;
use crate::link::protocol::Containment;

/// A container that is guarded from beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerTarget {
    pub name: String,
    /// The file without which the kubelet does not start it. The guard removes it before it stops anything, since the
    /// keeper may not be there to do so.
    pub lease_file: PathBuf,
}

/// One container, by its name.
#[derive(Debug)]
pub struct Container {
    processes: Processes,
    membership: Membership,
    lease_file: CString,
    keeper: Option<Pid>,
    /// `Started` is still to be told.
    started: bool,
    /// One of its processes: when that ends, the guard checks whether any is left.
    witness: Option<OwnedFd>,
}

impl Container {
    /// The container that is named, in the pod of this process.
    ///
    /// # Errors
    /// When its processes could not be told from others.
    pub fn new(target: &ContainerTarget) -> io::Result<Self> {
        Ok(Self {
            processes: Processes::open()?,
            membership: Membership::new(&target.name).map_err(|why| {
                io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!(
                        "the processes of the container {} cannot be told from others, as in gVisor and Kata \
                         Containers: {why}; let its container run `lockkeeper guard` (guard: Wrap)",
                        target.name
                    ),
                )
            })?,
            keeper: None,
            lease_file: CString::new(target.lease_file.as_os_str().as_bytes())?,
            started: false,
            witness: None,
        })
    }
}

/// Kills a container in place of a guard that was killed itself.
#[derive(Debug)]
pub(crate) struct ContainerKiller(Container);

impl ContainerKiller {
    /// For the container of a guard; sets the memory aside that [`ContainerKiller::kill`] needs.
    ///
    /// # Errors
    /// When the target is no container, or its processes could not be found in `/proc`.
    pub(crate) fn new(target: &ContainerTarget) -> io::Result<Self> {
        Container::new(target).map(Self)
    }

    /// SIGKILL to all that is there; true when there was nothing.
    pub(crate) fn kill(&mut self) -> bool {
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

impl Target for Container {
    fn mode(&self) -> Mode {
        Mode::Container
    }

    fn containment(&self) -> Containment {
        Containment::Container
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
        self.membership.mark(&mut self.processes);
        for process in self.processes.guarded() {
            let is_parent = |other: &Process| other.pid.as_raw_nonzero().get() == process.parent;
            if !self.processes.guarded().any(is_parent) {
                let _ = self.processes.signal(process.pid, process.started, signo.into());
            }
        }
    }

    fn found(&mut self) -> (u32, u32) {
        found_marked(&self.processes)
    }

    fn in_doubt(&self) -> Option<u32> {
        self.processes.doubtful().next().map(Process::number)
    }

    fn sweep(&mut self, sweep: Sweep) -> Sight {
        let Self {
            processes,
            membership,
            witness,
            ..
        } = self;
        let sight = sweep_twice(
            processes,
            sweep,
            |_| {},
            |processes| {
                membership.mark(processes);
                if witness.is_none() {
                    let mut found = processes.guarded();
                    *witness = found.find_map(|process| {
                        rustix::process::pidfd_open(process.pid, PidfdFlags::empty()).ok()
                    });
                }
            },
        );
        if sweep == Sweep::Stop {
            processes.note_stopped();
        }
        sight
    }

    /// Spares doubtful processes: nothing of the container's former run is left, so they belong to another container.
    fn clear(&mut self) -> Sight {
        let Self {
            processes,
            membership,
            ..
        } = self;
        sweep_twice(
            processes,
            Sweep::Kill,
            |_| {},
            |processes| membership.mark_known(processes),
        )
    }

    fn rehearse(&mut self) {
        self.membership.mark(&mut self.processes);
        self.processes.rehearse();
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.keeper.take_if(|keeper| *keeper == pid);
        }
    }

    fn keeper_is(&mut self, keeper: Option<Pid>) {
        self.keeper = keeper;
    }

    fn keeper(&self) -> Option<Pid> {
        self.keeper
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
