//! The application below an [`anchor`], held together by a control group, a PID namespace or nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use lockkeeper_daemon::exit::killed_by;
use lockkeeper_lock::{BootInstant, FencingToken};
use rustix::process::Pid;
use rustix::thread::Timespec;

use super::application::Application;
use super::pipe::pipe;
use super::tree::Tree;
use crate::guard::anchor::report::{self, Received, Report};
use crate::guard::anchor::word::Speaker;
use crate::guard::anchor::{self, Pipes};
use crate::guard::cgroup::{Group, State};
use crate::guard::containment::{Hold, Kind};
use crate::guard::kill::found_marked;
use crate::guard::lines::Lines;
use crate::guard::namespace;
use crate::guard::processes::Processes;
use crate::guard::reaping::{Left, reap};
use crate::guard::schedule::{Event, Mode, Sight, Sweep};
use crate::guard::target::Target;
use crate::link::protocol::Containment;
use crate::sys::{self, CommandLine, Program};

/// The exit code that is reported for the main process of an anchor that was killed: SIGKILL.
const KILLED: u8 = killed_by(libc::SIGKILL as u8);

/// How long the guard waits for the end of the anchor after the end of the main process. Unless something else is left,
/// the anchor ends within a fraction of this time. Its end proves as much as two looks at all of `/proc`, and comes
/// sooner.
const MOMENT: Duration = Duration::from_millis(2);

/// The pause between two looks for the end of the anchor.
const STEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000,
};

/// The application below an anchor.
#[derive(Debug)]
pub(in crate::guard) struct Subreaper {
    program: Program,
    /// The command line of the guard, which each anchor inherits and replaces.
    line: Option<CommandLine>,
    application: Application,
    anchor: Option<Anchor>,
    hold: Hold,
    /// The pipe to the keeper for words that count after the guard's end.
    words: Option<Speaker>,
    tree: Tree,
    /// What the last reaping left. The orphans of an anchor that was killed are children of the guard.
    left: Left,
}

#[derive(Debug)]
struct Anchor {
    pid: Pid,
    /// Whether the anchor is not reaped yet. Only the guard reaps it, so until then its number means no other process.
    alive: bool,
    /// Whether a signal has ended the anchor, so that its children may have become children of the guard.
    killed: bool,
    /// The end at which the guard reads the anchor's reports; `None` when nobody can send one any more. The kernel may
    /// need longer than that to end the namespace of an anchor.
    reports: Option<OwnedFd>,
    /// The pipe that is closed when the guard ends, which tells the anchor of it. The first process of a namespace gets
    /// its orders through this pipe.
    lifeline: OwnedFd,
}

impl Subreaper {
    /// Returns a target that starts `program` below an anchor and holds it together by `hold`. The guard and its
    /// anchors speak into `words`.
    ///
    /// # Errors
    /// When the guard cannot be a subreaper, or cannot read `/proc`.
    pub(crate) fn new(program: Program, hold: Hold, words: Option<Speaker>) -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self {
            program,
            // Without it the anchor is called like the guard.
            line: CommandLine::own().ok(),
            application: Application::default(),
            anchor: None,
            hold,
            words,
            tree: Tree {
                processes: Processes::open()?,
                lines: Lines::new(),
                keeper: None,
                anchor: None,
                since: 0,
            },
            left: Left::Nothing,
        })
    }
}

impl Subreaper {
    /// Applies the sweep in one step to all that the control group or the namespace holds together, and returns what is
    /// in there.
    fn sweep_held(&mut self, sweep: Sweep) -> Sight {
        let Some(anchor) = &self.anchor else {
            return Sight::default();
        };
        match &self.hold.0 {
            Kind::Cgroup(group) => sweep_group(group, sweep),
            Kind::Pidns => {
                let _ = match sweep {
                    // Our child, and not reaped: the number cannot mean another process.
                    Sweep::Kill if anchor.alive => sys::signal_process(anchor.pid, libc::SIGKILL),
                    Sweep::Stop => rustix::io::write(&anchor.lifeline, &[namespace::STOP]).map(drop),
                    Sweep::Continue => rustix::io::write(&anchor.lifeline, &[namespace::CONTINUE]).map(drop),
                    Sweep::Kill | Sweep::Look => Ok(()),
                };
                Sight::default()
            }
            Kind::Sweep => {
                // Reading all processes of a large machine takes a while; the main process is known already.
                match sweep {
                    Sweep::Kill => self.signal_main(libc::SIGKILL as u8),
                    Sweep::Stop => self.signal_main(libc::SIGSTOP as u8),
                    Sweep::Continue | Sweep::Look => {}
                }
                Sight::default()
            }
        }
    }

    /// Applies the sweep to those descendants of the guard that [`Self::sweep_held`] does not reach, and returns what
    /// it has seen of them.
    fn sweep_descendants(&mut self, sweep: Sweep) -> Sight {
        match (&self.hold.0, sweep) {
            // Nothing leaves a PID namespace. It is gone when its first process is.
            (Kind::Pidns, Sweep::Kill) => Sight {
                alive: true,
                unstopped: true,
                ..Sight::default()
            },
            (Kind::Pidns, _) => self.tree.sweep_all(Sweep::Look),
            (Kind::Sweep, _) | (Kind::Cgroup(_), Sweep::Kill) => self.tree.sweep_all(sweep),
            // `/proc` does not show whether a process is frozen. A process whose group cannot be read counts as
            // outside of the group.
            (Kind::Cgroup(group), _) => self.tree.sweep_some(sweep, |proc, pid, lines| {
                group.has(proc, pid, lines).unwrap_or(false)
            }),
        }
    }
}

impl Subreaper {
    fn read_reports(&mut self) {
        let Some(anchor) = &mut self.anchor else {
            return;
        };
        let mut has_ended = false;
        while let Some(reports) = &anchor.reports {
            match report::receive(reports) {
                Received::Report(Report::Forked, sender) => {
                    self.application.is(sender, &self.tree.processes);
                }
                Received::Report(Report::Exited(code), _) => {
                    self.application.ended(code);
                    has_ended = true;
                }
                Received::Nothing => break,
                Received::End => anchor.reports = None,
            }
        }
        if has_ended {
            self.await_anchor();
        }
    }

    /// Gives an anchor without children a moment to end.
    fn await_anchor(&mut self) {
        let end = BootInstant::now() + MOMENT;
        loop {
            self.reap();
            let is_over = self.anchor.as_ref().is_none_or(|anchor| !anchor.alive);
            if is_over || BootInstant::now() >= end {
                return;
            }
            let _ = rustix::thread::nanosleep(&STEP);
        }
    }
}

fn sweep_group(group: &Group, sweep: Sweep) -> Sight {
    // A failure shows in the state of the group, or in the descendants.
    let _ = match sweep {
        Sweep::Kill => group.kill(),
        Sweep::Stop => group.freeze(true),
        Sweep::Continue => group.freeze(false),
        Sweep::Look => Ok(()),
    };
    match group.state() {
        Some(State { populated, frozen }) => Sight {
            alive: populated,
            unstopped: populated && !frozen,
            ..Sight::default()
        },
        None => Sight {
            alive: true,
            unstopped: true,
            ..Sight::default()
        },
    }
}

impl Target for Subreaper {
    fn mode(&self) -> Mode {
        Mode::Subreaper
    }

    fn containment(&self) -> Containment {
        self.hold.containment()
    }

    fn start(&mut self, token: FencingToken) -> io::Result<()> {
        self.program.set_token(token.0);
        if let Kind::Cgroup(group) = &self.hold.0 {
            // The one before may have been killed while it was frozen.
            group.freeze(false)?;
        }
        let guard = rustix::process::getpid();
        let (exec_read, exec) = pipe()?;
        let (reports_read, reports) = report::channel()?;
        let (lifeline_read, lifeline) = pipe()?;
        if let Some(words) = &self.words {
            words.begin()?;
        }
        let forked = match &self.hold.0 {
            Kind::Pidns => sys::fork_into_namespace()?,
            Kind::Cgroup(_) | Kind::Sweep => sys::fork()?,
        };
        let Some(pid) = forked else {
            // Without this the anchor would keep its own lifeline up.
            drop(lifeline);
            let pipes = Pipes {
                lifeline: lifeline_read,
                reports,
                exec,
                words: self.words.as_ref().map(Speaker::pipe),
            };
            anchor::run(
                guard,
                self.line,
                &self.program,
                &self.hold.0,
                &mut self.tree.processes,
                pipes,
            )
        };
        if let Kind::Cgroup(group) = &mut self.hold.0 {
            group.used();
        }
        self.tree.since = self.tree.processes.started(pid).unwrap_or(0);
        self.tree.anchor = Some(pid);
        self.application = Application::forked(exec_read);
        self.anchor = Some(Anchor {
            pid,
            alive: true,
            killed: false,
            reports: Some(reports_read),
            lifeline,
        });
        Ok(())
    }

    fn keeper_is(&mut self, keeper: Option<Pid>) {
        self.tree.keeper = keeper;
    }

    fn keeper(&self) -> Option<Pid> {
        self.tree.keeper
    }

    fn signal_main(&mut self, signo: u8) {
        self.application.signal(signo, &self.tree.processes);
    }

    fn sweep(&mut self, sweep: Sweep) -> Sight {
        self.reap();
        let Some(anchor) = &self.anchor else {
            return Sight::default();
        };
        // A subreaper that has no children left ends, and the first process of a PID namespace is not
        // reaped before all others there are gone: either proves that nothing descends from us.
        let is_proof = !anchor.alive && (!anchor.killed || matches!(self.hold.0, Kind::Pidns));
        let mut sight = self.sweep_held(sweep);
        if !is_proof {
            sight = sight.and(self.sweep_descendants(sweep));
            sight.alive |= self.tree.anchor.is_some();
        }
        if !sight.alive {
            self.anchor = None;
        }
        sight
    }

    fn found(&mut self) -> (u32, u32) {
        found_marked(&self.tree.processes)
    }

    fn rehearse(&mut self) {
        if let Kind::Cgroup(group) = &self.hold.0 {
            let _ = group.state();
        }
        self.tree.processes.rehearse();
    }

    fn has_more_to_reap(&self) -> bool {
        self.left == Left::More
    }

    fn reap(&mut self) {
        self.left = reap(|pid, status| {
            // From now on the number may be given to a process of the application.
            self.tree.keeper.take_if(|keeper| *keeper == pid);
            if let Some(anchor) = self.anchor.as_mut().filter(|anchor| anchor.pid == pid) {
                anchor.alive = false;
                anchor.killed = status.signaled();
                self.tree.anchor = None;
            }
        });
    }

    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let reports = self
            .anchor
            .as_ref()
            .filter(|anchor| anchor.alive)
            .and_then(|anchor| anchor.reports.as_ref())
            .map(AsFd::as_fd);
        [self.application.exec_pipe(), reports]
    }

    fn news(&mut self) -> Option<Event> {
        self.read_reports();
        if self
            .anchor
            .as_ref()
            .is_some_and(|anchor| !anchor.alive && anchor.killed)
        {
            self.application.ended(KILLED);
        }
        self.application.news()
    }
}
