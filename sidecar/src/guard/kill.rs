//! SIGKILL, SIGSTOP and SIGCONT to all processes that were found, and what is seen of them then.

use rustix::process::Pid;

use super::processes::{Process, Processes};
use super::schedule::{Sight, Sweep};

/// See [`Target::found`](super::target::Target::found). What is in doubt comes after what is marked.
pub(super) fn found_marked(processes: &Processes) -> (u32, u32) {
    let mut found = processes.guarded().chain(processes.doubtful());
    let first = found.next().map(Process::number);
    let others = u32::try_from(found.count()).unwrap_or(u32::MAX - 1);
    first.map_or((0, 0), |first| (others + 1, first))
}

/// The signal of a sweep that is sent to what is known before all of `/proc` is read.
fn sent_at_once(sweep: Sweep) -> Option<i32> {
    match sweep {
        Sweep::Kill => Some(libc::SIGKILL),
        Sweep::Stop => Some(libc::SIGSTOP),
        Sweep::Continue | Sweep::Look => None,
    }
}

/// Kills or stops the children of a subreaper, where the sweep does that, as long as new ones come: a look at all of
/// `/proc` is too slow for processes that fork and end.
pub(super) fn chase(
    processes: &Processes,
    sweep: Sweep,
    subreaper: Pid,
    is_meant: impl Fn(&Process) -> bool,
) {
    let runs = |process: &Process| match sweep {
        Sweep::Stop => !process.main_thread_is_stopped(),
        _ => !process.is_zombie(),
    };
    if let Some(signo) = sent_at_once(sweep) {
        processes.chase(subreaper, signo, &|process| runs(process) && is_meant(process));
    }
}

/// Marks processes, signals them, and returns what was there before the signal took effect. The absence of a process
/// counts only if a second look, at once, does not see it either: a fork may take a place in the table that the first
/// look has passed already, and a process that was seen stopped may have been resumed by one that was seen stopped
/// later. `chase` goes over what it knows to look at first, and once more after the first look.
pub(super) fn sweep_twice(
    processes: &mut Processes,
    sweep: Sweep,
    chase: impl Fn(&Processes),
    mut mark: impl FnMut(&mut Processes),
) -> Sight {
    // Reading all processes of a machine takes a while; those of the last look are known already.
    if let Some(signo) = sent_at_once(sweep) {
        for process in processes.guarded() {
            let _ = processes.signal(process.pid, process.started, signo);
        }
    }
    chase(processes);
    mark(processes);
    let first = sweep_marked(processes, sweep);
    // Those that were killed before have ended by now, and what they had forked has a new parent.
    chase(processes);
    if first.alive && first.unstopped {
        return first;
    }
    mark(processes);
    first.and(sweep_marked(processes, sweep))
}

/// Signals all processes that are marked as guarded, and returns what was there before. An incomplete look never
/// proves that nothing is left.
///
/// Doubtful processes are treated as the application, to which they may belong; if only such are left, the sight is
/// `unsure`.
pub(super) fn sweep_marked(processes: &mut Processes, sweep: Sweep) -> Sight {
    let incomplete = !processes.is_complete();
    let mut sight = Sight {
        alive: incomplete,
        unstopped: incomplete,
        ..Sight::default()
    };
    let (mut is_sure, mut has_woken) = (incomplete, false);
    for at in 0..processes.len() {
        let Some(process) = processes.marked_at(at) else {
            continue;
        };
        sight.alive = true;
        is_sure |= process.guarded;
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
            // A process that could not be signalled is gone, or the next sweep sees it again.
            let _ = processes.signal(process.pid, process.started, signo);
        }
    }
    sight.fresh &= !has_woken && !incomplete;
    sight.unsure = sight.alive && !is_sure;
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
        let sight = sweep_twice(
            &mut processes(),
            Sweep::Look,
            |_| {},
            |processes| {
                looks += 1;
                processes.scan();
                processes.mark(|_, process| Ok(looks == 2 && process.pid == getpid()));
            },
        );
        assert!(sight.alive && sight.unstopped, "{sight:?}");
    }

    #[test]
    fn a_process_in_doubt_counts_as_left_and_is_told_and_killed_with_the_rest() {
        use std::os::unix::process::ExitStatusExt;
        let mut processes = processes();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("started");
        let number = child.id();
        let mark = |processes: &mut Processes| {
            processes.scan();
            processes.doubt(|_, process| Ok(process.number() == number));
        };
        let sight = sweep_twice(&mut processes, Sweep::Look, |_| {}, mark);
        assert!(sight.alive && sight.unstopped && sight.unsure, "{sight:?}");
        assert_eq!(found_marked(&processes), (1, number));
        sweep_twice(&mut processes, Sweep::Kill, |_| {}, mark);
        let ended = child.wait().expect("waited for");
        assert_eq!(ended.signal(), Some(libc::SIGKILL));
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
            let sight = sweep_twice(
                &mut processes(),
                Sweep::Look,
                |_| {},
                |processes| {
                    processes.scan();
                    processes.mark(|_, _| Err(error));
                },
            );
            assert_eq!(
                (sight.alive, sight.unstopped),
                (!says_gone, !says_gone),
                "{error}"
            );
        }
    }
}
