//! The guard's own child tree, as PID 1 of a container or as a subreaper above an anchor.

mod application;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lockkeeper_lock::FencingToken;
use rustix::process::{Pid, WaitOptions};

use self::application::Application;
use super::anchor::{self, Pipes, Report, exit_code};
use super::post_start::PostStart;
use super::processes::Processes;
use super::schedule::{Event, Mode, Sight, Sweep};
use super::target::{Target, sweep_marked};
use crate::sys::{self, Program};

/// What the main process of an anchor that was killed is said to have ended by: SIGKILL.
const KILLED: u8 = 128 + 9;

/// The application as a child of a guard that is PID 1.
#[derive(Debug)]
pub(super) struct Pid1 {
    program: Program,
    processes: Processes,
    application: Application,
    /// The hook after each start, and its process while that runs.
    post_start: Option<PostStart>,
    hook: Option<Pid>,
    /// The last `wait` said that there are no children. For PID 1 that proves that nothing is left:
    /// an orphan of its namespace is its child.
    childless: bool,
}

/// The application below an anchor (see [`anchor`]).
#[derive(Debug)]
pub(super) struct Subreaper {
    program: Program,
    processes: Processes,
    application: Application,
    anchor: Option<Anchor>,
    /// Spared with all that descends from it.
    keeper: Option<Pid>,
    /// Start time of the last anchor. What is older is none of the application's processes, but
    /// perhaps a child that the guard's process had before.
    since: u64,
}

#[derive(Debug)]
struct Anchor {
    pid: Pid,
    reports: OwnedFd,
    /// Held, never written to: its end is how the anchor learns of ours.
    _lifeline: OwnedFd,
    /// Not yet reaped.
    alive: bool,
    /// It did not end by itself, so that its children may have come to us.
    killed: bool,
}

impl Pid1 {
    pub fn new(program: Program, post_start: Option<PostStart>) -> io::Result<Self> {
        if rustix::process::getpid() != Pid::INIT {
            return Err(io::Error::other(
                "not PID 1: the guard must be the first process of the application's container",
            ));
        }
        let processes = Processes::open()?;
        Ok(Self {
            program,
            processes,
            application: Application::default(),
            post_start,
            hook: None,
            childless: true,
        })
    }

    /// Starts the hook beside the application that was just forked, as a kubelet does.
    fn start_hook(&mut self, token: FencingToken) -> io::Result<()> {
        let Some(mut program) = self.post_start.as_ref().map_or(Ok(None), PostStart::program)? else {
            return Ok(());
        };
        program.set_token(token.0);
        // Why it cannot be executed would be told here: its exit code says enough.
        let nobody = File::options().write(true).open("/dev/null")?.into();
        self.hook = match sys::fork()? {
            None => anchor::become_application(Pid::INIT, &program, &nobody),
            hook => hook,
        };
        Ok(())
    }
}

impl Target for Pid1 {
    fn mode(&self) -> Mode {
        Mode::Pid1
    }

    fn start(&mut self, token: FencingToken) -> io::Result<()> {
        self.program.set_token(token.0);
        let (exec_read, exec_write) = pipe()?;
        match sys::fork()? {
            None => {
                application::take_terminal();
                anchor::become_application(Pid::INIT, &self.program, &exec_write)
            }
            Some(pid) => {
                self.childless = false;
                self.application = Application::forked(exec_read);
                self.application.is(pid);
                self.start_hook(token)
            }
        }
    }

    fn signal_main(&mut self, signo: u8) {
        self.application.signal(signo);
    }

    fn sweep(&mut self, sweep: Sweep) -> Sight {
        // kill(-1) says nothing about what it skipped, so look afterwards.
        let signo = match sweep {
            Sweep::Kill => libc::SIGKILL,
            Sweep::Stop => libc::SIGSTOP,
            Sweep::Continue => libc::SIGCONT,
            Sweep::Look => 0,
        };
        sys::signal_everybody(signo);
        self.reap();
        if self.childless {
            return Sight::default();
        }
        if sweep == Sweep::Kill {
            return Sight {
                alive: true,
                unstopped: true,
            };
        }
        // Only what descends from the application: what the runtime put into the container beside
        // it, as an exec probe, is nobody's lock.
        self.processes.scan();
        self.processes.mark_descendants(Pid::INIT, None, None, 0);
        sweep_marked(&self.processes, Sweep::Look)
    }

    fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let code = exit_code(status);
                    self.application.reaped(pid, code);
                    let is_hook = self.hook.take_if(|hook| *hook == pid).is_some();
                    // A kubelet ends a container whose hook fails.
                    if is_hook && code != 0 && self.application.is_running() {
                        super::say(format_args!(
                            "the postStart hook ended with {code}; ending the application"
                        ));
                        self.application.ended(code);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.application.exec_pipe(), None]
    }

    fn news(&mut self) -> Option<Event> {
        self.application.news()
    }
}

impl Subreaper {
    pub fn new(program: Program, keeper: Option<Pid>) -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let processes = Processes::open()?;
        Ok(Self {
            program,
            processes,
            application: Application::default(),
            anchor: None,
            keeper,
            since: 0,
        })
    }

    /// Marks what belongs to the application.
    fn mark(&mut self) {
        let anchor = self
            .anchor
            .as_ref()
            .filter(|anchor| anchor.alive)
            .map(|anchor| anchor.pid);
        self.processes.scan();
        let guard = rustix::process::getpid();
        self.processes
            .mark_descendants(guard, anchor, self.keeper, self.since);
    }
}

impl Target for Subreaper {
    fn mode(&self) -> Mode {
        Mode::Subreaper
    }

    fn start(&mut self, token: FencingToken) -> io::Result<()> {
        self.program.set_token(token.0);
        let guard = rustix::process::getpid();
        let (exec_read, exec) = pipe()?;
        let (reports_read, reports) = pipe()?;
        let (lifeline, lifeline_write) = pipe()?;
        match sys::fork()? {
            None => {
                let pipes = Pipes {
                    lifeline,
                    reports,
                    exec,
                };
                // Without this the anchor would keep its own lifeline up.
                drop(lifeline_write);
                anchor::run(guard, &self.program, &mut self.processes, pipes)
            }
            Some(pid) => {
                self.since = self.processes.started(pid).unwrap_or(0);
                self.application = Application::forked(exec_read);
                self.anchor = Some(Anchor {
                    pid,
                    reports: reports_read,
                    _lifeline: lifeline_write,
                    alive: true,
                    killed: false,
                });
                Ok(())
            }
        }
    }

    fn signal_main(&mut self, signo: u8) {
        self.application.signal(signo);
    }

    fn sweep(&mut self, sweep: Sweep) -> Sight {
        self.reap();
        if self.anchor.is_none() {
            return Sight::default();
        }
        // To read all processes of a large machine takes a while; the main one is known already.
        match sweep {
            Sweep::Kill => self.application.signal(libc::SIGKILL as u8),
            Sweep::Stop => self.application.signal(libc::SIGSTOP as u8),
            Sweep::Continue | Sweep::Look => {}
        }
        self.mark();
        let mut sight = sweep_marked(&self.processes, sweep);
        match &self.anchor {
            // It ends by itself when it has no children left, and that is the proof.
            Some(anchor) if anchor.alive => sight.alive = true,
            Some(anchor) if anchor.killed && !sight.alive => {
                // A fork may have hidden behind the position of one scan, but not of two.
                self.mark();
                sight = sweep_marked(&self.processes, sweep);
            }
            _ => {}
        }
        if !sight.alive {
            self.anchor = None;
        }
        sight
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if let Some(anchor) = &mut self.anchor
                && anchor.pid == pid
            {
                anchor.alive = false;
                anchor.killed = status.signaled();
            }
        }
    }

    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let reports = self
            .anchor
            .as_ref()
            .filter(|anchor| anchor.alive)
            .map(|anchor| anchor.reports.as_fd());
        [self.application.exec_pipe(), reports]
    }

    fn news(&mut self) -> Option<Event> {
        if let Some(anchor) = &self.anchor {
            let mut bytes = [0; anchor::REPORT_LEN];
            while let Ok(anchor::REPORT_LEN) = rustix::io::read(&anchor.reports, &mut bytes) {
                match Report::decode(bytes) {
                    Some(Report::Forked(pid)) => self.application.is(pid),
                    Some(Report::Exited(code)) => self.application.ended(code),
                    None => {}
                }
            }
            if !anchor.alive && anchor.killed {
                self.application.ended(KILLED);
            }
        }
        self.application.news()
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pipe::{PipeFlags, pipe_with};
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}
