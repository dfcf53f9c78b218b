//! The anchor: the process between a guard that is not PID 1 and the application.
//!
//! A guard that is PID 1 needs no help: when it dies the kernel kills its whole PID namespace.
//! Anywhere else a guard that gets SIGKILL (by the OOM killer, say) would leave the application
//! running without anybody to stop it. `PR_SET_PDEATHSIG` alone covers the application's main
//! process and none of its children. So the guard forks a process whose only task is to outlive it
//! for a moment:
//!
//! * it is a subreaper, so whatever the application leaves behind becomes its child;
//! * it reaps, and reports how the main process ended;
//! * it ends when it has no children left, which for a subreaper is the exact proof that nothing
//!   of the tree is left;
//! * when the guard is gone it kills all its descendants, again and again until there are none.
//!
//! It learns of the guard's end from a pipe whose writing end only the guard holds. SIGCONT as
//! its own death signal wakes it should somebody have stopped it. When the anchor itself is killed,
//! its children become those of the guard, which is a subreaper too, and kills them. Only who
//! kills both at one blow leaves something behind, and of that not the main process, which has
//! SIGKILL as its death signal.
//!
//! It is a fork without exec, so it shares its memory with the guard.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, getppid};

use super::processes::Processes;
use super::schedule::{EXIT_SOFTWARE, Sweep};
use super::target::sweep_marked;
use crate::sys::{self, Program, SignalSet};

/// Bytes of what the anchor reports: a kind and a value.
pub(super) const REPORT_LEN: usize = 8;

/// What the anchor reports to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The application is this process.
    Forked(Pid),
    /// The main process ended so.
    Exited(u8),
}

/// The anchor's ends of the pipes to the guard.
pub(super) struct Pipes {
    /// Closed when the guard is gone. Nothing is ever written to it.
    pub lifeline: OwnedFd,
    /// For reports.
    pub reports: OwnedFd,
    /// For the errno of a failed `exec`; closed by a successful one.
    pub exec: OwnedFd,
}

impl Report {
    fn encode(self) -> [u8; REPORT_LEN] {
        let (kind, value) = match self {
            Self::Forked(pid) => (1u32, pid.as_raw_nonzero().get().unsigned_abs()),
            Self::Exited(code) => (2, code.into()),
        };
        let mut bytes = [0; REPORT_LEN];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    pub fn decode(bytes: [u8; REPORT_LEN]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let value = u32::from_ne_bytes([e, f, g, h]);
        match u32::from_ne_bytes([a, b, c, d]) {
            1 => Pid::from_raw(value.cast_signed()).map(Self::Forked),
            2 => u8::try_from(value).ok().map(Self::Exited),
            _ => None,
        }
    }
}

/// The life of the anchor, from the fork on.
pub(super) fn run(guard: Pid, program: &Program, processes: &mut Processes, pipes: Pipes) -> ! {
    let anchor = getpid();
    let _ = rustix::process::set_child_subreaper(Some(anchor));
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::CONT));
    let _ = rustix::thread::set_name(c"guard-anchor");

    let application = match sys::fork() {
        Ok(Some(pid)) => pid,
        Ok(None) => become_application(anchor, program, &pipes.exec),
        Err(error) => give_up(&pipes.exec, &error),
    };
    drop(pipes.exec);
    report(&pipes.reports, Report::Forked(application));

    // Every signal stays blocked, as the guard has it: only SIGKILL ends an anchor early.
    let mut chld = SignalSet::default();
    chld.add(libc::SIGCHLD);
    let signals = sys::take_signals(chld).ok();
    let reopened = processes.reopen().is_ok();
    let signals_fd = signals.as_ref().map_or(0, AsRawFd::as_raw_fd);
    sys::close_all_but([
        pipes.lifeline.as_raw_fd(),
        pipes.reports.as_raw_fd(),
        processes.as_raw_fd(),
        signals_fd,
    ]);

    // An anchor that cannot do its task must not let the application run.
    let mut guard_is_gone = !reopened || signals.is_none() || getppid() != Some(guard);
    loop {
        if !reap(application, &pipes.reports) {
            sys::exit_now(0);
        }
        if guard_is_gone {
            processes.scan();
            processes.mark_descendants(anchor, None, None, 0);
            sweep_marked(processes, Sweep::Kill);
        }
        guard_is_gone |= wait(signals.as_ref(), &pipes.lifeline, guard_is_gone);
    }
}

/// What the forked child does: prepares itself and becomes the application.
pub(super) fn become_application(parent: Pid, program: &Program, exec: &OwnedFd) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(parent) {
        // The parent died before the line above: nobody would ever stop the application.
        sys::exit_now(EXIT_SOFTWARE);
    }
    sys::release_signals();
    give_up(exec, &program.exec())
}

/// Tells the guard why there will be no application, and ends.
fn give_up(exec: &OwnedFd, error: &io::Error) -> ! {
    let errno = error.raw_os_error().unwrap_or_default();
    let _ = rustix::io::write(exec, &errno.to_ne_bytes());
    sys::exit_now(EXIT_SOFTWARE)
}

/// Without a guard there is nobody to tell, and nothing to do about it.
fn report(reports: &OwnedFd, report: Report) {
    let _ = rustix::io::write(reports, &report.encode());
}

/// Reaps all children that have ended; false when there are none left.
fn reap(application: Pid, reports: &OwnedFd) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == application => {
                report(reports, Report::Exited(exit_code(status)))
            }
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Waits for a child's end or the guard's. True when the guard is gone.
fn wait(signals: Option<&OwnedFd>, lifeline: &OwnedFd, guard_is_gone: bool) -> bool {
    // Whatever forks while it is killed is looked for again soon.
    let again = Timespec {
        tv_sec: 0,
        tv_nsec: 2_000_000,
    };
    let signals = signals.unwrap_or(lifeline);
    let mut fds = [
        PollFd::new(signals, PollFlags::IN),
        PollFd::new(lifeline, PollFlags::IN),
    ];
    if guard_is_gone {
        let _ = rustix::event::poll(&mut fds[..1], Some(&again));
    } else {
        let _ = rustix::event::poll(&mut fds, None);
    }
    let gone = !fds[1].revents().is_empty();
    while sys::next_signal(signals.as_fd()).is_some() {}
    gone
}

/// The exit code, or 128 and the number of the signal, as shells count.
pub(super) fn exit_code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signo)) => 128 + signo,
        (None, None) => i32::from(EXIT_SOFTWARE),
    };
    code as u8
}
