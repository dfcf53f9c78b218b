//! The children of a subreaper, which sees its whole tree come by.
//!
//! A look at all of `/proc` takes longer than some processes live. A process whose parent has ended is a child of its
//! subreaper at once, and the kernel lists the children of one process by themselves
//! (`/proc/PID/task/TID/children`, proc_pid_task_children(5), `CONFIG_PROC_CHILDREN`). That list is short and
//! read within microseconds. So a chain of processes, of which each starts the next one and ends, is caught there.
//! The list proves nothing: it may miss some, and is not there on each kernel. Only a complete look proves that nothing
//! is left.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::Timespec;

use super::files::{open_in, stat};
use super::{Process, Processes};

/// Bytes of a list that are read at once.
const BUFFER: usize = 1024;

/// How many children one chase looks at, of as many that a list shows, and how often it reads the list: together some
/// milliseconds. What is beyond is left to a look at all.
const MOST: usize = 256;
const LISTED: usize = 1024;
const ROUNDS: usize = 64;

/// How often a chase looks once more when nobody new is there. A process that got SIGKILL needs the processor to end, and
/// only then are its children those of the subreaper; this process may have a real-time priority.
const MOMENTS: usize = 5;
const MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000,
};

/// The children that a chase has seen: it looks at each once.
struct Seen {
    children: [Option<Pid>; MOST],
    count: usize,
}

// === impl Seen ===

impl Seen {
    /// True if it was not seen before, and there is room for it.
    fn adds(&mut self, child: Pid) -> bool {
        let is_new = self.count < MOST && !self.children[..self.count].contains(&Some(child));
        if is_new {
            self.children[self.count] = Some(child);
            self.count += 1;
        }
        is_new
    }
}

impl Processes {
    /// Sends a signal to the children of `parent` that `is_meant` selects, and to those that come after them, each once,
    /// until nobody new comes for half a millisecond or nobody is left.
    pub(in crate::guard) fn chase(&self, parent: Pid, signo: i32, is_meant: impl Fn(&Process) -> bool) {
        let mut seen = Seen {
            children: [None; MOST],
            count: 0,
        };
        let mut moments = MOMENTS;
        for _ in 0..ROUNDS {
            let (mut is_any_left, mut is_any_new) = (false, false);
            let listed = each_child(&self.proc, parent, |child| {
                is_any_left = true;
                if !seen.adds(child) {
                    return;
                }
                is_any_new = true;
                if let Ok(process) = stat(&self.proc, child)
                    && process.parent == parent.as_raw_nonzero().get()
                    && is_meant(&process)
                {
                    // One that is gone needs no signal, and one that may not be signalled is left to a look at all.
                    let _ = self.signal(child, process.started, signo);
                }
            });
            let is_over = !is_any_left || seen.count == MOST || (!is_any_new && moments == 0);
            if listed.is_err() || is_over {
                return;
            }
            if !is_any_new {
                moments -= 1;
                let _ = rustix::thread::nanosleep(&MOMENT);
            }
        }
    }
}

/// Calls `visit` with each child of a process of one thread.
///
/// # Errors
/// What `open(2)` and `read(2)` say; `ENOENT` too for a kernel that has no such lists.
fn each_child(proc: &OwnedFd, parent: Pid, mut visit: impl FnMut(Pid)) -> Result<(), Errno> {
    let list = open_in(proc, format_args!("{parent}/task/{parent}/children"))?;
    let mut buffer = [0; BUFFER];
    // Each number ends with a blank, so the last one is whole when its blank has been read.
    let mut number = 0_i32;
    let mut rest = LISTED;
    while rest > 0 {
        let len = rustix::io::read(&list, &mut buffer)?;
        if len == 0 {
            break;
        }
        for byte in &buffer[..len] {
            if byte.is_ascii_digit() {
                number = number.saturating_mul(10).saturating_add(i32::from(byte - b'0'));
            } else if let Some(child) = Pid::from_raw(std::mem::take(&mut number)) {
                visit(child);
                rest = rest.saturating_sub(1);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};
    use std::time::Duration;

    use lockkeeper_lock::BootInstant;

    use super::*;

    fn sleeping() -> Child {
        Command::new("sleep").arg("60").spawn().expect("started")
    }

    fn parent_of(children: usize) -> Child {
        let script = format!("for i in $(seq {children}); do sleep 60 & done; wait");
        Command::new("sh").args(["-c", &script]).spawn().expect("started")
    }

    fn pid(child: &Child) -> Pid {
        Pid::from_child(child)
    }

    /// Waits until the list shows so many, and returns them.
    fn children_of(processes: &Processes, parent: &Child, count: usize) -> Vec<Pid> {
        let end = BootInstant::now() + Duration::from_secs(60);
        loop {
            let mut children = Vec::new();
            each_child(&processes.proc, pid(parent), |child| children.push(child))
                .expect("this kernel lists children");
            if children.len() == count {
                return children;
            }
            assert!(BootInstant::now() < end, "{children:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn all_children_that_are_meant_get_the_signal_and_no_other_process() {
        let processes = Processes::open().expect("/proc is mounted");
        // More than fit into one read of the list.
        let (mut parent, mut other) = (parent_of(200), sleeping());
        let children = children_of(&processes, &parent, 200);
        let spared = children[0];
        processes.chase(pid(&parent), libc::SIGKILL, |process| {
            process.pid != spared && !process.is_zombie()
        });
        // Its shell reaps what has ended.
        assert_eq!(children_of(&processes, &parent, 1), [spared]);
        processes.chase(pid(&parent), libc::SIGKILL, |process| !process.is_zombie());
        assert!(parent.wait().expect("its children have ended").success());
        assert_eq!(other.try_wait().expect("asked"), None);
        other.kill().expect("killed");
        assert_eq!(other.wait().expect("reaped").signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_chase_ends_though_its_children_do_not() {
        let processes = Processes::open().expect("/proc is mounted");
        let mut parent = parent_of(3);
        children_of(&processes, &parent, 3);
        // Signal 0 ends nobody.
        processes.chase(pid(&parent), 0, |_| true);
        processes.chase(pid(&parent), libc::SIGKILL, |_| true);
        parent.wait().expect("reaped");
    }
}
