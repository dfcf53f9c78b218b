//! Whether whoever asks at the socket is a part of the application: of what is stopped when the lock goes.

use std::fs;
use std::io;

use rustix::process::Pid;

/// The processes of an application: what descends from its guard. (The guard is a subreaper, so that this does not
/// change when a parent ends.)
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// The guard.
    pub guard: Pid,
    /// The keeper, and what descends from it, is no part of it.
    pub keeper: Option<Pid>,
}

/// The answer to whether a process is inside.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Inside {
    /// It is a part of the application.
    pub(crate) inside: bool,
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: i32,
    /// Ticks since boot. With the process id it names one process for ever.
    started: u64,
}

/// How often a tree may change while it is looked at.
const ATTEMPTS: u32 = 100;

impl Tree {
    /// Whether process `pid` of our PID namespace belongs to it.
    ///
    /// # Errors
    /// When its ancestors cannot be told.
    pub(super) fn holds(&self, pid: i32) -> io::Result<bool> {
        let unknown = || io::Error::other(format!("the ancestors of process {pid} cannot be told"));
        // 0 is a process of another PID namespace (unix(7), SO_PEERCRED).
        let child = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(unknown)?;
        for _ in 0..ATTEMPTS {
            if let Some(answer) = self.look(child)? {
                return Ok(answer);
            }
        }
        Err(unknown())
    }

    /// `None` when the ancestors changed meanwhile.
    ///
    /// A parent is read between two equal looks at its child: so it was the parent then, and not a later process of
    /// its number.
    fn look(&self, mut child: Pid) -> io::Result<Option<bool>> {
        let mut seen = stat(child)?;
        loop {
            if child == self.guard || Some(child) == self.keeper {
                return Ok(Some(false));
            }
            let Some(parent) = Pid::from_raw(seen.parent) else {
                return Ok(Some(false));
            };
            if parent == self.guard {
                return Ok(Some(true));
            }
            let above = stat(parent);
            if stat(child)? != seen {
                return Ok(None);
            }
            (child, seen) = (parent, above?);
        }
    }
}

fn stat(pid: Pid) -> io::Result<Process> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = text.rsplit_once(") ").map(|(_, fields)| fields.split(' '));
    // Field numbers of proc_pid_stat(5): 3 is the state, 4 the parent, 22 the start time.
    let numbers = fields.and_then(|mut fields| {
        let parent = fields.nth(1)?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Process { parent, started })
    });
    numbers.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be read")))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleep() -> Child {
        Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[test]
    fn what_descends_from_the_guard_is_inside_but_for_the_keeper() {
        let own = rustix::process::getpid();
        let mut child = sleep();
        let pid = child.id().cast_signed();
        let tree = |guard, keeper| Tree { guard, keeper };
        assert!(tree(own, None).holds(pid).unwrap());
        let parent = rustix::process::getppid().unwrap();
        assert!(tree(parent, None).holds(pid).unwrap(), "a grandchild");
        assert!(
            !tree(parent, Some(own)).holds(pid).unwrap(),
            "a child of the keeper"
        );
        assert!(
            !tree(Pid::from_child(&child), None)
                .holds(own.as_raw_nonzero().get())
                .unwrap()
        );
        assert!(!tree(own, None).holds(1).unwrap());
        assert!(tree(own, None).holds(0).is_err(), "of another namespace");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
