//! Which signals the guard takes, and what they mean to it.

use crate::sys::{self, SignalSet};

/// Signals that a process cannot usefully block: they report its own faults.
const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// The C library keeps these two to itself (thread cancellation, `setuid` of all threads).
const RESERVED: [i32; 2] = [32, 33];

/// Signals that guard and anchor read before they look at a deadline or at the other again: as many as there are. Processes of
/// the application may send them faster than they are read.
pub(super) const MOST_AT_ONCE: usize = 64;

/// Everything that the guard takes from the kernel through its signalfd: every signal that can be
/// caught, but for faults, SIGPIPE (a lost socket is seen by its error code), and those that were
/// ignored when the guard was started (`nohup`): they stay ignored, for the application as well.
pub(super) fn taken() -> SignalSet {
    let ignored = sys::ignored_signals();
    let mut set = SignalSet::default();
    for signo in 1..=64 {
        let never = [libc::SIGKILL, libc::SIGSTOP, libc::SIGPIPE].contains(&signo)
            || FAULTS.contains(&signo)
            || RESERVED.contains(&signo);
        if !never && !ignored.contains(signo) {
            set.add(signo);
        }
    }
    set.add(libc::SIGCHLD);
    set
}

/// An application that ends after one of these was asked to.
pub(super) fn asks_to_end(signo: u8) -> bool {
    [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT].contains(&i32::from(signo))
}

/// SIGHUP: the terminal is gone; or a wish for new settings, for an application that takes it so.
pub(super) fn hangs_up(signo: u8) -> bool {
    i32::from(signo) == libc::SIGHUP
}

pub(super) fn is_term(signo: u8) -> bool {
    i32::from(signo) == libc::SIGTERM
}

/// SIGCONT.
pub(super) fn resumes(signo: u8) -> bool {
    i32::from(signo) == libc::SIGCONT
}

/// Not passed on: a terminal sends them to processes that read or write it in the background, and the guard does
/// neither. Nor may they stop the guard, which has deadlines to keep.
pub(super) fn is_for_nobody(signo: u8) -> bool {
    [libc::SIGTTIN, libc::SIGTTOU].contains(&i32::from(signo))
}
