//! The application as a child of a guard that is the first process of its container.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use lockkeeper_lock::FencingToken;
use rustix::process::Pid;

use super::application::{self, Application};
use super::pipe::pipe;
use crate::guard::anchor::{self, exit_code};
use crate::guard::kill::{found_marked, sweep_twice};
use crate::guard::post_start::PostStart;
use crate::guard::processes::Processes;
use crate::guard::reaping::{Left, reap};
use crate::guard::schedule::{EXIT_SOFTWARE, Event, Mode, Sight, Sweep};
use crate::guard::target::Target;
use crate::link::protocol::Containment;
use crate::sys::{self, Program};

/// The guard counts and names survivors only if the container has at most this many processes, because reading one
/// takes some 10 µs.
const MOST_NAMED: usize = 256;

/// The application as a child of a guard that is PID 1.
#[derive(Debug)]
pub(in crate::guard) struct Pid1 {
    program: Program,
    processes: Processes,
    application: Application,
    /// The hook after each start.
    post_start: Option<PostStart>,
    /// The process of the hook, while it runs.
    hook: Option<Pid>,
    /// The exit code of a hook that has failed, until it is taken.
    failed_hook: Option<u8>,
    /// What the last reaping left. For PID 1 the absence of children proves that nothing is left of what it has
    /// started: an orphan of its namespace becomes its child.
    left: Left,
}

/// What the start of a hook needs, prepared before the application starts.
struct Hook {
    command: Vec<OsString>,
    /// Receives the error of a failed `exec`, which is not read: the exit code is enough.
    null: OwnedFd,
}

impl Pid1 {
    pub(crate) fn new(program: Program, post_start: Option<PostStart>) -> io::Result<Self> {
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
            failed_hook: None,
            left: Left::Nothing,
        })
    }

    /// Starts the hook beside the application that was just forked, as a kubelet does.
    fn start_hook(&mut self, hook: Hook, token: FencingToken) -> io::Result<()> {
        self.hook = match sys::fork()? {
            None => {
                let Some(Ok(mut program)) = self.post_start.as_ref().map(|hooks| hooks.program(hook.command))
                else {
                    sys::exit_now(EXIT_SOFTWARE)
                };
                program.set_token(token.0);
                anchor::become_application(Pid::INIT, &program, &hook.null)
            }
            forked => forked,
        };
        Ok(())
    }

    /// Returns the hook for a start, if there is one.
    fn hook(&self) -> io::Result<Option<Hook>> {
        let Some(command) = self.post_start.as_ref().map_or(Ok(None), PostStart::command)? else {
            return Ok(None);
        };
        let null = File::options().write(true).open("/dev/null")?.into();
        Ok(Some(Hook { command, null }))
    }
}

impl Target for Pid1 {
    fn mode(&self) -> Mode {
        Mode::Pid1
    }

    fn containment(&self) -> Containment {
        Containment::Pidns
    }

    fn start(&mut self, token: FencingToken) -> io::Result<()> {
        self.program.set_token(token.0);
        // Once the application runs, the guard waits for nothing but its deadlines.
        let hook = self.hook()?;
        let (exec_read, exec_write) = pipe()?;
        match sys::fork()? {
            None => {
                application::take_terminal();
                anchor::become_application(Pid::INIT, &self.program, &exec_write)
            }
            Some(pid) => {
                self.left = Left::Living;
                self.application = Application::forked(exec_read);
                self.application.is(pid, &self.processes);
                hook.map_or(Ok(()), |hook| self.start_hook(hook, token))
            }
        }
    }

    fn signal_main(&mut self, signo: u8) {
        self.application.signal(signo, &self.processes);
    }

    fn sweep(&mut self, sweep: Sweep) -> Sight {
        // kill(-1) does not report what it skipped, so look afterwards.
        let signo = match sweep {
            Sweep::Kill => libc::SIGKILL,
            Sweep::Stop => libc::SIGSTOP,
            Sweep::Continue => libc::SIGCONT,
            Sweep::Look => 0,
        };
        sys::signal_everybody(signo);
        self.reap();
        // Processes that came in from outside, such as a hook of the kubelet, are not our children.
        if self.left == Left::Nothing && (sweep != Sweep::Kill || !sys::signal_everybody(0)) {
            return Sight::default();
        }
        if sweep == Sweep::Kill {
            return Sight {
                alive: true,
                unstopped: true,
                ..Sight::default()
            };
        }
        // Only what descends from the application: processes that the runtime has put into the container beside it,
        // such as an exec probe, do not concern the lock.
        sweep_twice(
            &mut self.processes,
            Sweep::Look,
            |_| {},
            |processes| {
                processes.scan();
                processes.mark_descendants(Pid::INIT, None, None, 0);
            },
        )
    }

    /// Counts what is left, by a short look only: the guard is about to end, the kernel ends the rest of the namespace
    /// with it, and that must not wait.
    fn found(&mut self) -> (u32, u32) {
        self.processes.scan_up_to(MOST_NAMED);
        if !self.processes.is_complete() {
            return (0, 0);
        }
        self.processes.mark_descendants(Pid::INIT, None, None, 0);
        found_marked(&self.processes)
    }

    fn rehearse(&mut self) {
        sys::signal_everybody(0);
        self.processes.rehearse();
    }

    fn has_more_to_reap(&self) -> bool {
        self.left == Left::More
    }

    fn reap(&mut self) {
        self.left = reap(|pid, status| {
            let code = exit_code(status);
            self.application.reaped(pid, code);
            let is_hook = self.hook.take_if(|hook| *hook == pid).is_some();
            // A kubelet ends a container whose hook fails.
            if is_hook && code != 0 && self.application.is_running() {
                self.failed_hook = Some(code);
                self.application.ended(code);
            }
        });
    }

    fn take_failed_hook(&mut self) -> Option<u8> {
        self.failed_hook.take()
    }

    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.application.exec_pipe(), None]
    }

    fn news(&mut self) -> Option<Event> {
        self.application.news()
    }
}
