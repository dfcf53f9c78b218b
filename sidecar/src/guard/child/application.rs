//! The main process of a tree: from the fork over `exec` to its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::Pid;

use crate::guard::processes::Processes;
use crate::guard::schedule::Event;
use crate::sys::SignalSet;

/// What is known of the main process.
#[derive(Debug, Default)]
pub(super) struct Application {
    pid: Option<Pid>,
    /// When it was started: so signals never reach another process with the same id.
    started: Option<u64>,
    /// Its id is known, and its end is not.
    is_running: bool,
    /// Open until `exec` has succeeded or failed.
    exec: Option<OwnedFd>,
    state: State,
    code: Option<u8>,
    /// Signals from before its id was known.
    early: SignalSet,
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
    pub(crate) fn forked(exec: OwnedFd) -> Self {
        Self {
            exec: Some(exec),
            state: State::Forked,
            ..Self::default()
        }
    }

    /// It is this process, which gets the signals that came before this was known.
    pub(crate) fn is(&mut self, pid: Pid, processes: &Processes) {
        self.pid = Some(pid);
        self.started = processes.started(pid);
        self.is_running = true;
        for signo in std::mem::take(&mut self.early).iter() {
            self.signal(signo, processes);
        }
    }

    /// Some child was reaped; perhaps it was this one.
    pub(crate) fn reaped(&mut self, pid: Pid, code: u8) {
        if self.pid == Some(pid) {
            self.ended(code);
        }
    }

    pub(crate) fn ended(&mut self, code: u8) {
        self.is_running = false;
        if self.state != State::Nothing {
            self.code.get_or_insert(code);
        }
    }

    /// It was started, and has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Passes a signal on as soon as its id is known. SIGKILL and SIGSTOP are not passed on: they are for all
    /// processes, and their sender checks the effect.
    pub(crate) fn signal(&mut self, signo: u8, processes: &Processes) {
        let is_for_all = [libc::SIGKILL, libc::SIGSTOP].contains(&i32::from(signo));
        let is_unknown = self.pid.is_none() && self.state != State::Nothing;
        if is_unknown && !is_for_all {
            self.early.add(signo.into());
        } else if let (true, Some(pid)) = (self.is_running, self.pid)
            && let Some(started) = self.started.or_else(|| processes.started(pid))
        {
            // It may have ended a moment ago, or become another user: then it is left to SIGKILL.
            let _ = processes.signal(pid, started, signo.into());
        }
    }

    pub(crate) fn exec_pipe(&self) -> Option<BorrowedFd<'_>> {
        self.exec.as_ref().map(AsFd::as_fd)
    }

    /// Its next news, in the order in which they happened.
    pub(crate) fn news(&mut self) -> Option<Event> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    use super::*;
    use crate::guard::child::pipe::pipe;

    fn sleeper() -> (Child, Pid) {
        let child = Command::new("sleep").arg("60").spawn().expect("started");
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    fn forked() -> (Application, Processes) {
        let (exec, _) = pipe().expect("a pipe");
        (Application::forked(exec), Processes::open().expect("/proc"))
    }

    #[test]
    fn a_signal_that_comes_before_the_process_is_known_reaches_it_all_the_same() {
        let (mut application, processes) = forked();
        application.signal(libc::SIGTERM as u8, &processes);
        let (mut child, pid) = sleeper();
        application.is(pid, &processes);
        assert_eq!(child.wait().expect("waited").signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn a_signal_before_the_start_of_one_application_is_not_for_the_next_one() {
        let (mut application, processes) = forked();
        application.signal(libc::SIGTERM as u8, &processes);
        let (exec, _) = pipe().expect("a pipe");
        application = Application::forked(exec);
        let (mut child, pid) = sleeper();
        application.is(pid, &processes);
        // SIGINT and SIGHUP may be ignored here: a shell that starts these tests in the background does that.
        application.signal(libc::SIGUSR1 as u8, &processes);
        assert_eq!(child.wait().expect("waited").signal(), Some(libc::SIGUSR1));
    }
}
