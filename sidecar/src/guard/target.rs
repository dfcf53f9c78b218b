//! What the guard guards, as the event loop sees it.

use std::io;
use std::os::fd::BorrowedFd;

use lockkeeper_lock::FencingToken;

use super::containment::Containment;
use super::processes::{Process, Processes};
use super::schedule::{Event, Mode, Sight, Sweep};

/// Something that can be started, stopped, and seen to be gone.
///
/// Nothing here allocates but [`Target::start`].
pub(super) trait Target {
    /// Which rules the schedule follows.
    fn mode(&self) -> Mode;

    /// What holds the application together.
    fn containment(&self) -> Containment;

    /// Starts the application. Its success or failure comes as an event.
    fn start(&mut self, token: FencingToken) -> io::Result<()>;

    /// Sees to it that nobody else starts the application.
    fn remove_lease(&mut self) {}

    /// Sends a signal to the main process, if there is one.
    fn signal_main(&mut self, signo: u8);

    /// Does something to all processes, and says what it saw.
    fn sweep(&mut self, sweep: Sweep) -> Sight;

    /// How many processes the last sweep has found, and the process id of one; zeros for what is not known.
    fn found(&self) -> (u32, u32);

    /// A process that the last sweep has neither taken for one of the application nor for another's.
    fn in_doubt(&self) -> Option<u32> {
        None
    }

    /// Looks at what [`Target::sweep`] would look at, and sends signals that are none.
    fn rehearse(&mut self);

    /// Reaps children that have ended. Called whenever some may have.
    fn reap(&mut self);

    /// File descriptors whose readability may mean news.
    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2];

    /// The next news of the application, if there is any.
    fn news(&mut self) -> Option<Event>;
}

/// See [`Target::found`]. What is in doubt comes after what is marked.
pub(super) fn found_marked(processes: &Processes) -> (u32, u32) {
    let mut found = processes.guarded().chain(processes.doubtful());
    let first = found.next().map(Process::number);
    let others = u32::try_from(found.count()).unwrap_or(u32::MAX - 1);
    first.map_or((0, 0), |first| (others + 1, first))
}

/// Marks, and signals what is marked, and says what was there before the signal had any effect. What
/// one look did not see counts only when a second one, at once, does not see it either: a fork may hide
/// behind the place that the first had reached in the table, and who was seen stopped may have been
/// resumed by another who was seen stopped later.
pub(super) fn sweep_twice(
    processes: &mut Processes,
    sweep: Sweep,
    mut mark: impl FnMut(&mut Processes),
) -> Sight {
    // To read all processes of a machine takes a while; those of the last look are known already.
    let at_once = match sweep {
        Sweep::Kill => Some(libc::SIGKILL),
        Sweep::Stop => Some(libc::SIGSTOP),
        Sweep::Continue | Sweep::Look => None,
    };
    if let Some(signo) = at_once {
        for process in processes.guarded() {
            let _ = processes.signal(process.pid, process.started, signo);
        }
    }
    mark(processes);
    let first = sweep_marked(processes, sweep);
    if first.alive && first.unstopped {
        return first;
    }
    mark(processes);
    first.and(sweep_marked(processes, sweep))
}

/// Signals all processes that are marked as guarded, and says what was there before. A look that could
/// not see everything has not seen that nothing is left.
pub(super) fn sweep_marked(processes: &mut Processes, sweep: Sweep) -> Sight {
    let incomplete = !processes.is_complete();
    let is_in_doubt = processes.doubtful().next().is_some();
    let mut sight = Sight {
        alive: incomplete || is_in_doubt,
        unstopped: incomplete || is_in_doubt,
        unsure: is_in_doubt && !incomplete,
        fresh: is_in_doubt && !incomplete,
    };
    let mut has_woken = false;
    for at in 0..processes.len() {
        let Some(process) = processes.guarded_at(at) else {
            continue;
        };
        sight.alive = true;
        sight.unsure = false;
        let is_stopped = sweep != Sweep::Kill && processes.is_stopped(&process);
        sight.unstopped |= !is_stopped;
        let is_fresh = processes.is_fresh(&process);
        sight.fresh |= !is_stopped && is_fresh;
        has_woken |= !is_stopped && !is_fresh;
        let signo = match sweep {
            Sweep::Kill => libc::SIGKILL,
            Sweep::Stop if !is_stopped => libc::SIGSTOP,
            Sweep::Continue => libc::SIGCONT,
            Sweep::Stop | Sweep::Look => continue,
        };
        if !process.is_zombie() {
            // Who could not be signalled is seen again by the next sweep, or is gone.
            let _ = processes.signal(process.pid, process.started, signo);
        }
    }
    sight.fresh &= !has_woken && !incomplete;
    sight
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::process::getpid;

    use super::*;

    fn processes() -> Processes {
        Processes::open().expect("/proc is mounted")
    }

    #[test]
    fn what_the_first_look_has_missed_is_seen_by_the_second() {
        let mut looks = 0;
        let sight = sweep_twice(&mut processes(), Sweep::Look, |processes| {
            looks += 1;
            processes.scan();
            processes.mark(|_, process| Ok(looks == 2 && process.pid == getpid()));
        });
        assert!(sight.alive && sight.unstopped, "{sight:?}");
    }

    #[test]
    fn a_process_in_doubt_counts_as_left_and_is_told_and_not_killed() {
        let mut processes = processes();
        let own = getpid();
        let sight = sweep_twice(&mut processes, Sweep::Kill, |processes| {
            processes.scan();
            processes.doubt(|_, process| Ok(process.pid == own));
        });
        assert!(sight.alive && sight.unstopped && sight.unsure, "{sight:?}");
        assert_eq!(
            found_marked(&processes),
            (1, own.as_raw_nonzero().get().unsigned_abs())
        );
    }

    #[test]
    fn only_the_answer_that_a_process_is_gone_leaves_a_look_complete() {
        for (error, says_gone) in [
            (Errno::NOENT, true),
            (Errno::SRCH, true),
            (Errno::ACCESS, false),
            (Errno::PERM, false),
            (Errno::MFILE, false),
            (Errno::NOMEM, false),
            (Errno::IO, false),
        ] {
            let sight = sweep_twice(&mut processes(), Sweep::Look, |processes| {
                processes.scan();
                processes.mark(|_, _| Err(error));
            });
            assert_eq!(
                (sight.alive, sight.unstopped),
                (!says_gone, !says_gone),
                "{error}"
            );
        }
    }
}
