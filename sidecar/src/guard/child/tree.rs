//! The processes of an application below an anchor, as `/proc` shows them, and signals to all of them.

use std::os::fd::OwnedFd;

use rustix::process::Pid;

use crate::guard::kill::{chase, sweep_twice};
use crate::guard::lines::Lines;
use crate::guard::processes::Processes;
use crate::guard::schedule::{Sight, Sweep};

/// How the processes of the application are found in `/proc`.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) processes: Processes,
    pub(super) lines: Lines,
    /// The keeper, which every sweep spares with all of its descendants.
    pub(super) keeper: Option<Pid>,
    /// The anchor while it lives, which is no part of the application.
    pub(super) anchor: Option<Pid>,
    /// Start time of the last anchor. An older process is none of the application's. It may be a child that the guard's
    /// process had before it became the guard.
    pub(super) since: u64,
}

impl Tree {
    /// Goes over the descendants of this process that belong to the application.
    pub(super) fn sweep_all(&mut self, sweep: Sweep) -> Sight {
        let guard = rustix::process::getpid();
        let (anchor, keeper, since) = (self.anchor, self.keeper, self.since);
        let chase_all = |processes: &Processes| {
            chase(processes, sweep, anchor.unwrap_or(guard), |process| {
                Some(process.pid) != keeper && process.started >= since
            });
        };
        sweep_twice(&mut self.processes, sweep, chase_all, |processes| {
            processes.scan();
            processes.mark_descendants(guard, anchor, keeper, since);
        })
    }

    /// The same, except for those that `spares` selects.
    pub(super) fn sweep_some(
        &mut self,
        sweep: Sweep,
        mut spares: impl FnMut(&OwnedFd, Pid, &mut Lines) -> bool,
    ) -> Sight {
        let guard = rustix::process::getpid();
        sweep_twice(
            &mut self.processes,
            sweep,
            |_| {},
            |processes| {
                processes.scan();
                processes.mark_descendants(guard, self.anchor, self.keeper, self.since);
                processes
                    .mark(|proc, process| Ok(process.guarded && !spares(proc, process.pid, &mut self.lines)));
            },
        )
    }
}
