//! The main process of a tree: from the fork over `exec` to its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags};

use crate::guard::schedule::Event;
use crate::sys;

/// What is known of the main process.
#[derive(Debug, Default)]
pub(super) struct Application {
    pid: Option<Pid>,
    /// Signals go through this, so that they never reach another process with the same id.
    pidfd: Option<OwnedFd>,
    /// Open until `exec` has succeeded or failed.
    exec: Option<OwnedFd>,
    state: State,
    code: Option<u8>,
}

/// How far its news have been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Nothing,
    Forked,
    /// `exec` has succeeded; the process id may not be known yet.
    Executed,
    Started,
}

impl Application {
    /// It was forked; `exec` is the reading end of the pipe that a successful `exec` closes.
    pub fn forked(exec: OwnedFd) -> Self {
        Self {
            exec: Some(exec),
            state: State::Forked,
            ..Self::default()
        }
    }

    /// It is this process, which has not been reaped yet.
    pub fn is(&mut self, pid: Pid) {
        self.pid = Some(pid);
        self.pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
    }

    /// Some child was reaped; perhaps it was this one.
    pub fn reaped(&mut self, pid: Pid, code: u8) {
        if self.pid == Some(pid) {
            self.ended(code);
        }
    }

    /// It has ended.
    pub fn ended(&mut self, code: u8) {
        self.pidfd = None;
        if self.state != State::Nothing {
            self.code.get_or_insert(code);
        }
    }

    /// It was started, and has not ended.
    pub fn is_running(&self) -> bool {
        self.pidfd.is_some()
    }

    pub fn signal(&self, signo: u8) {
        if let Some(pidfd) = &self.pidfd {
            // It may have ended a moment ago, or become another user: then it is left to SIGKILL.
            let _ = sys::signal_pidfd(pidfd.as_fd(), signo.into());
        }
    }

    pub fn exec_pipe(&self) -> Option<BorrowedFd<'_>> {
        self.exec.as_ref().map(AsFd::as_fd)
    }

    /// Its next news, in the order in which they happened.
    pub fn news(&mut self) -> Option<Event> {
        if self.state == State::Forked
            && let Some(exec) = &self.exec
        {
            let mut errno = [0; 4];
            match rustix::io::read(exec, &mut errno) {
                Ok(4) => {
                    *self = Self::default();
                    return Some(Event::StartFailed {
                        errno: u32::from_ne_bytes(errno),
                    });
                }
                Ok(_) => {
                    self.exec = None;
                    self.state = State::Executed;
                }
                Err(_) => return None,
            }
        }
        match (self.state, self.pid, self.code) {
            (State::Executed, Some(pid), _) => {
                self.state = State::Started;
                Some(Event::Started {
                    pid: pid.as_raw_nonzero().get().unsigned_abs(),
                })
            }
            (State::Executed | State::Started, _, Some(code)) => {
                *self = Self::default();
                Some(Event::MainExited { code })
            }
            _ => None,
        }
    }
}

/// Gives the calling process a process group of its own, in the foreground of the terminal if there
/// is one, so that what is typed goes to the application and not to the guard.
///
/// Called with SIGTTOU blocked: the kernel sends that to background processes which do this.
pub(super) fn take_terminal() {
    let terminal = rustix::stdio::stdin();
    if rustix::termios::isatty(terminal) && rustix::process::setpgid(None, None).is_ok() {
        // Fails when it is not the controlling terminal, and then there is nothing to take.
        let _ = rustix::termios::tcsetpgrp(terminal, rustix::process::getpgrp());
    }
}
