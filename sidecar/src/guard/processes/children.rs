//! The children of a subreaper, which sees its whole tree come by.
//!
//! A look at all of `/proc` takes longer than some processes live. A process whose parent has ended is a child of its
//! subreaper at once, and the kernel lists the children of one process by themselves
//! (`/proc/PID/task/TID/children`, proc_pid_task_children(5), `CONFIG_PROC_CHILDREN`). That list is short and
//! read within microseconds. So a chain of processes, of which each starts the next one and ends, is caught there.
//! The list proves nothing: it may miss some, and is not there on each kernel. Only a complete look proves that nothing
//! is left.

use std::os::fd::OwnedFd;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use rustix::io::Errno;
use rustix::process::Pid;

use super::files::{open_in, stat};
use super::{Process, Processes};

/// Bytes of a list that are read at once.
const BUFFER: usize = 1024;

/// How many children get the signal in one chase. More of them at once are no chain, and are left to a look at all.
const MOST: usize = 256;

/// How long a chase may take: a hundredth of the margin. The kernel takes a lock of all processes for each child that it
/// lists, and a hostile application may have thousands.
const LONGEST: Duration = Duration::from_millis(2);

/// The children that have got the signal: each gets it once, since it needs the processor to end, and this process may have
/// a real-time priority.
struct Sent {
    children: [Option<Pid>; MOST],
    count: usize,
}

// === impl Sent ===

impl Sent {
    fn has(&self, child: Pid) -> bool {
        self.children[..self.count].contains(&Some(child))
    }

    /// False if there is no room for it.
    fn adds(&mut self, child: Pid) -> bool {
        let place = self.children.get_mut(self.count);
        let has_room = place.is_some();
        if let Some(place) = place {
            *place = Some(child);
            self.count += 1;
        }
        has_room
    }
}

impl Processes {
    /// Sends a signal to the children of `parent` that `is_meant` selects, each once, and to those that come meanwhile. It
    /// does not wait.
    pub(in crate::guard) fn chase(&self, parent: Pid, signo: i32, is_meant: &dyn Fn(&Process) -> bool) {
        let end = BootInstant::now() + LONGEST;
        let mut sent = Sent {
            children: [None; MOST],
            count: 0,
        };
        loop {
            let mut is_any_new = false;
            let listed = each_child(&self.proc, parent, &mut |child| {
                if !sent.has(child)
                    && let Ok(process) = stat(&self.proc, child)
                    && process.parent == parent.as_raw_nonzero().get()
                    && is_meant(&process)
                {
                    // One that is gone needs no signal, and one that may not be signalled is left to a look at all.
                    let _ = self.signal(child, process.started, signo);
                    is_any_new |= sent.adds(child);
                }
                BootInstant::now() < end
            });
            if listed.is_err() || !is_any_new || BootInstant::now() >= end {
                return;
            }
        }
    }
}

/// Calls `visit` with each child of a process of one thread, until it says false.
///
/// # Errors
/// What `open(2)` and `read(2)` say; `ENOENT` too for a kernel that has no such lists.
fn each_child(proc: &OwnedFd, parent: Pid, visit: &mut dyn FnMut(Pid) -> bool) -> Result<(), Errno> {
    let list = open_in(proc, format_args!("{parent}/task/{parent}/children"))?;
    let mut buffer = [0; BUFFER];
    // Each number ends with a blank, so the last one is whole when its blank has been read.
    let mut number = 0_i32;
    loop {
        let len = rustix::io::read(&list, &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        for byte in &buffer[..len] {
            if byte.is_ascii_digit() {
                number = number.saturating_mul(10).saturating_add(i32::from(byte - b'0'));
            } else if let Some(child) = Pid::from_raw(std::mem::take(&mut number))
                && !visit(child)
            {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

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

    /// Waits until the list shows so many, if that is said, and returns them.
    fn children_of(processes: &Processes, parent: &Child, count: Option<usize>) -> Vec<Pid> {
        let end = BootInstant::now() + Duration::from_secs(60);
        loop {
            let mut children = Vec::new();
            let listed = each_child(&processes.proc, pid(parent), &mut |child| {
                children.push(child);
                true
            });
            listed.expect("this kernel lists children");
            if count.is_none_or(|count| children.len() == count) {
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
        let children = children_of(&processes, &parent, Some(200));
        let spared = children[0];
        // On a busy machine one chase may not get to the end of the list.
        while children_of(&processes, &parent, None).len() > 1 {
            processes.chase(pid(&parent), libc::SIGKILL, &|process| process.pid != spared);
        }
        assert_eq!(children_of(&processes, &parent, None), [spared]);
        processes.chase(pid(&parent), libc::SIGKILL, &|_| true);
        assert!(parent.wait().expect("its children have ended").success());
        assert_eq!(other.try_wait().expect("asked"), None);
        other.kill().expect("killed");
        assert_eq!(other.wait().expect("reaped").signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_chase_ends_though_its_children_do_not() {
        let processes = Processes::open().expect("/proc is mounted");
        let mut parent = parent_of(3);
        children_of(&processes, &parent, Some(3));
        // Signal 0 ends nobody.
        processes.chase(pid(&parent), 0, &|_| true);
        while !children_of(&processes, &parent, None).is_empty() {
            processes.chase(pid(&parent), libc::SIGKILL, &|_| true);
        }
        parent.wait().expect("reaped");
    }
}
