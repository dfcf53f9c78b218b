//! The anchor: the process between a guard that is not PID 1 and the application.
//!
//! A guard that is PID 1 needs no help: when it dies the kernel kills its whole PID namespace.
//! Anywhere else a guard that gets SIGKILL (by the OOM killer, say) would leave the application running, and no
//! process would stop it. `PR_SET_PDEATHSIG` alone covers the application's main process and none of its children. So
//! the guard forks a process whose only task is to outlive it for a moment:
//!
//! * it is a subreaper, so whatever the application leaves behind becomes its child;
//! * it reaps, and reports how the main process ended;
//! * it ends when it has no children left, which for a subreaper is the exact proof that nothing
//!   of the tree is left;
//! * when the guard is gone it kills all its descendants, again and again until there are none.
//!
//! It learns of the guard's end from a pipe whose writing end only the guard holds. Its own death signal is SIGCONT,
//! which wakes it if it was stopped. When the anchor itself is killed, its children become those of the guard, which
//! is a subreaper too, and kills them.
//!
//! It has a session of its own, so that a kill of the guard's process group or session does not reach it. The
//! application stays in those, since it may belong to a terminal; it is executed after the anchor has left them. If
//! both are killed by their numbers, processes of the application may survive, except for the main process, whose
//! death signal is SIGKILL. The keeper handles these: a [word] of the last anchor tells it whether anything was left.
//!
//! With a [control group](super::cgroup) the anchor stays outside of it, and kills it as a whole. Of a
//! [PID namespace](super::namespace) it is the first process: its end ends all others, so its death signal is
//! SIGKILL, and it stops the others when the guard writes that into the pipe.
//!
//! It is a fork without exec, so it shares its memory with the guard.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use lockkeeper_daemon::exit::killed_by;
use lockkeeper_lock::{BootInstant, KILL_ALLOWANCE};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitStatus, getpid, getppid};

use self::report::Report;
use self::word::Word;
use super::cgroup::Group;
use super::containment::Kind;
use super::kill::{chase, found_marked, sweep_marked};
use super::namespace;
use super::processes::Processes;
use super::reaping::{Left, reap};
use super::schedule::{EXIT_SOFTWARE, Sweep};
use super::signals::MOST_AT_ONCE;
use crate::sys::{self, CommandLine, Precedence, Program, SignalSet};

pub(super) mod report;
pub(super) mod word;

/// The name of an anchor in a list of processes.
const TITLE: &str = "guard-anchor";

/// The anchor's ends of the pipes to the guard.
pub(super) struct Pipes<'a> {
    /// The pipe that is closed when the guard is gone. The guard writes its orders to the first process of a namespace
    /// into it.
    pub lifeline: OwnedFd,
    pub reports: OwnedFd,
    /// The pipe for the errno of a failed `exec`; a successful one closes it.
    pub exec: OwnedFd,
    /// The pipe for [`Word`]s to the keeper.
    pub words: Option<&'a OwnedFd>,
}

/// An anchor that kills reports what is left once in this many rounds.
const ROUNDS_PER_WORD: u32 = 10;

/// How long the pause between two rounds of killing is [`SOON`], since processes may fork while they are killed. What
/// is left after this time most likely waits for something else, such as a disk, and the pause becomes [`LATER`].
const HASTE: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(50);

/// Runs the anchor, from the fork on.
pub(super) fn run(
    guard: Pid,
    line: Option<CommandLine>,
    program: &Program,
    hold: &Kind,
    processes: &mut Processes,
    pipes: Pipes<'_>,
) -> ! {
    let anchor = getpid();
    let is_first = matches!(hold, Kind::Pidns);
    let group = match hold {
        Kind::Cgroup(group) => Some(group),
        Kind::Pidns | Kind::Sweep => None,
    };
    let _ = rustix::process::set_child_subreaper(Some(anchor));
    let death_signal = if is_first { Signal::KILL } else { Signal::CONT };
    let _ = rustix::process::set_parent_process_death_signal(Some(death_signal));
    // Neither `killall` nor `pkill -f` with a word of the guard's command line finds both.
    let _ = rustix::thread::set_name(c"guard-anchor");
    if let Some(line) = line {
        line.replace(TITLE);
    }
    if is_first && let Err(error) = namespace::prepare() {
        give_up(&pipes.exec, error);
    }

    let (gate, left) = gate().unwrap_or_else(|error| give_up(&pipes.exec, error));
    let application = match group.map_or_else(sys::fork, Group::fork) {
        Ok(Some(pid)) => pid,
        Ok(None) => {
            drop(left);
            // With this report the kernel tells the guard the anchor's process id.
            let _ = report::send(&pipes.reports, Report::Forked);
            wait_at(&gate);
            become_application(anchor, program, &pipes.exec)
        }
        Err(error) => give_up(&pipes.exec, Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    };
    // After the fork, which would take the user's nice value from the application. Until the gate is open the application
    // waits for this process, and after that it may fill the machine with forks.
    let mut precedence = Precedence::default();
    precedence.set(true);
    if let Err(error) = rustix::process::setsid().and_then(|_| rustix::io::write(&left, &[1])) {
        give_up(&pipes.exec, error);
    }
    drop(pipes.exec);

    // Every signal stays blocked, as the guard has it: only SIGKILL ends an anchor early.
    let mut chld = SignalSet::default();
    chld.add(libc::SIGCHLD);
    let signals = sys::take_signals(chld).ok();
    // The first process of a namespace has no use for the table, and `/proc` is another one.
    let reopened = is_first || processes.reopen().is_ok();
    let signals_fd = signals.as_ref().map_or(0, AsRawFd::as_raw_fd);
    let [group_fd, kill_fd] = group.map_or([0; 2], Group::descriptors);
    sys::close_all_but(&mut [
        pipes.lifeline.as_raw_fd(),
        pipes.reports.as_raw_fd(),
        processes.as_raw_fd(),
        signals_fd,
        group_fd,
        kill_fd,
        pipes.words.map_or(0, AsRawFd::as_raw_fd),
    ]);

    // A lock is not inherited (mlock(2)).
    sys::lock_memory();
    if !is_first {
        processes.rehearse();
    }

    // An anchor that cannot do its task must not let the application run. The parent of the first
    // process of a namespace is outside, where it cannot see it.
    let is_orphan = || !is_first && getppid() != Some(guard);
    let is_unfit = !reopened || signals.is_none();
    let mut guard_is_gone = is_orphan();
    let mut kills_since: Option<BootInstant> = None;
    let mut rounds = 0_u32;
    loop {
        let left = reap_children(application, &pipes.reports);
        if left == Left::Nothing {
            if let Some(group) = group.filter(|_| guard_is_gone || is_orphan()) {
                group.remove();
            }
            // Also to a guard that seems to live: what ended all children may be ending it as well.
            if let Some(words) = pipes.words.filter(|_| !is_first) {
                word::say(words, Word::Nothing);
            }
            sys::exit_now(0);
        }
        let is_to_kill = guard_is_gone || is_unfit;
        if is_to_kill {
            if is_first {
                sys::exit_now(EXIT_SOFTWARE);
            }
            if let Some(group) = group {
                // What it misses is found below.
                let _ = group.kill();
            }
            chase(processes, Sweep::Kill, anchor, |_| true);
            processes.scan();
            processes.mark_descendants(anchor, None, None, 0);
            sweep_marked(processes, Sweep::Kill);
            chase(processes, Sweep::Kill, anchor, |_| true);
            if let Some(words) = pipes.words.filter(|_| rounds.is_multiple_of(ROUNDS_PER_WORD)) {
                let (count, pid) = found_marked(processes);
                word::say(words, Word::Left { count, pid });
            }
            rounds = rounds.wrapping_add(1);
        }
        let again = is_to_kill.then(|| {
            let now = BootInstant::now();
            let elapsed = now.saturating_since(*kills_since.get_or_insert(now));
            precedence.set(elapsed < KILL_ALLOWANCE);
            if elapsed < HASTE { SOON } else { LATER }
        });
        let again = if left == Left::More {
            Some(Duration::ZERO)
        } else {
            again
        };
        guard_is_gone |= wait(signals.as_ref(), &pipes.lifeline, again);
    }
}

/// Makes the pipe at which the application waits until the anchor has left the guard's process group and session. A
/// kill of that group or session before would hit the anchor, too, and could miss what the application has started.
fn gate() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
}

/// Waits at the gate until the anchor has left. If the anchor ends before, this process ends too.
fn wait_at(gate: &OwnedFd) {
    loop {
        match rustix::io::read(gate, &mut [0; 1]) {
            Ok(1) => return,
            Err(Errno::INTR) => {}
            _ => sys::exit_now(EXIT_SOFTWARE),
        }
    }
}

/// Prepares the forked child, and turns it into the application.
pub(super) fn become_application(parent: Pid, program: &Program, exec: &OwnedFd) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(parent) {
        // The parent died before the line above: then nothing would ever stop the application.
        sys::exit_now(EXIT_SOFTWARE);
    }
    sys::release_signals();
    let error = program.exec();
    give_up(exec, Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Tells the guard why there will be no application, and ends.
fn give_up(exec: &OwnedFd, error: Errno) -> ! {
    let _ = rustix::io::write(exec, &error.raw_os_error().to_ne_bytes());
    sys::exit_now(EXIT_SOFTWARE)
}

/// Reaps children that have ended, and reports the end of the application.
fn reap_children(application: Pid, reports: &OwnedFd) -> Left {
    reap(|pid, status| {
        if pid == application {
            // This fails only without a guard, and then no report is needed.
            let _ = report::send(reports, Report::Exited(exit_code(status)));
        }
    })
}

/// Waits for the end of a child or of the guard, and returns whether the guard is gone. An anchor that kills gives the
/// time until its next round: it waits for the end of a child or that long. With the time zero it does not wait.
fn wait(signals: Option<&OwnedFd>, lifeline: &OwnedFd, again: Option<Duration>) -> bool {
    let timeout = again.map(|time| Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    let signals = signals.unwrap_or(lifeline);
    let mut fds = [
        PollFd::new(signals, PollFlags::IN),
        PollFd::new(lifeline, PollFlags::IN),
    ];
    // A guard that is gone is known to be gone while this kills.
    let watched = if again.is_some_and(|time| !time.is_zero()) {
        1
    } else {
        2
    };
    let _ = rustix::event::poll(&mut fds[..watched], timeout.as_ref());
    let has_word = !fds[1].revents().is_empty();
    let _ = (0..MOST_AT_ONCE)
        .take_while(|_| sys::next_signal(signals.as_fd()).is_some())
        .count();
    has_word && !obey(lifeline)
}

/// Does what the guard has written; false when the guard is gone.
fn obey(lifeline: &OwnedFd) -> bool {
    let mut orders = [0; 8];
    loop {
        match rustix::io::read(lifeline, &mut orders) {
            Ok(0) => return false,
            Ok(len) => orders[..len].iter().copied().for_each(namespace::obey),
            Err(Errno::AGAIN) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Returns the exit code, or 128 and the number of the signal, as shells count.
pub(super) fn exit_code(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signo)) => killed_by(signo as u8),
        (None, None) => EXIT_SOFTWARE,
    }
}
