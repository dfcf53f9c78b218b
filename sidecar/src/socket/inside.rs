//! Whether a process that asks at the socket is a part of the application: of what is stopped when the lock is lost.

use std::fs;
use std::io;

use rustix::process::Pid;

/// The processes of an application: what descends from its guard. (The guard is a subreaper, so that this does not
/// change when a parent ends.)
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    pub guard: Pid,
    /// The keeper, and what descends from it, is no part of it.
    pub keeper: Option<Pid>,
    /// The guard's process had children of its own before: what descends from them descends from the guard, too, and is
    /// not stopped with the application.
    pub has_elders: bool,
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

/// How often a tree may change while it is looked at. It rarely does at all.
const ATTEMPTS: u32 = 10;

/// At most this many ancestors are looked at. Every process may ask, and may have as many ancestors as its limits
/// allow; a command deep in a build has some tens.
const ANCESTORS: usize = 128;

impl Tree {
    /// Whether process `pid` of our PID namespace belongs to it.
    ///
    /// Between two ancestors other tasks have their turn: the keeper has one thread, and an application to keep.
    ///
    /// # Errors
    /// When its ancestors cannot be told, or are too many.
    pub(super) async fn holds(&self, pid: i32) -> io::Result<bool> {
        let unknown = || io::Error::other(format!("the ancestors of process {pid} cannot be told"));
        // 0 is a process of another PID namespace (unix(7), SO_PEERCRED).
        let child = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(unknown)?;
        for _ in 0..ATTEMPTS {
            if let Some(answer) = self.look(child).await? {
                return Ok(answer);
            }
        }
        Err(unknown())
    }

    /// `None` when the ancestors changed meanwhile.
    ///
    /// A parent is read between two equal looks at its child: so it was the parent then, and not a later process of
    /// its number.
    async fn look(&self, mut child: Pid) -> io::Result<Option<bool>> {
        let mut seen = stat(child)?;
        for _ in 0..ANCESTORS {
            if child == self.guard || Some(child) == self.keeper {
                return Ok(Some(false));
            }
            let Some(parent) = Pid::from_raw(seen.parent) else {
                return Ok(Some(false));
            };
            if parent == self.guard && self.has_elders {
                return Err(io::Error::other(
                    "the outer `lockkeeper run` was executed by a process that had started others before, and those are \
                     not stopped with the lock: start them in another script, or the outer run without `exec`",
                ));
            }
            if parent == self.guard {
                return Ok(Some(true));
            }
            let above = stat(parent);
            if stat(child)? != seen {
                return Ok(None);
            }
            (child, seen) = (parent, above?);
            tokio::task::yield_now().await;
        }
        Err(io::Error::other(format!(
            "more than {ANCESTORS} processes are above it"
        )))
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

    /// A process with so many between itself and us, and what ends it.
    fn deep(processes: usize) -> (Child, i32) {
        let script = "f() { if [ $1 -gt 0 ]; then (f $(($1 - 1)); exit); else exec sh -c 'echo $$; read end'; fi; }; f $1";
        let mut first = Command::new("sh")
            .args(["-c", script, "sh", &processes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = first.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        (first, line.trim().parse().unwrap())
    }

    #[tokio::test]
    async fn a_process_with_too_many_above_it_is_refused_and_others_have_their_turns_meanwhile() {
        let tree = Tree {
            guard: rustix::process::getpid(),
            keeper: None,
            has_elders: false,
        };
        // The keeper has one thread, as this test.
        let turns = std::rc::Rc::new(std::cell::Cell::new(0));
        let counted = turns.clone();
        let other = async move {
            loop {
                counted.set(counted.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        let mut other = std::pin::pin!(other);
        for (processes, is_told) in [(ANCESTORS / 2, true), (ANCESTORS * 2, false)] {
            let (mut first, deepest) = deep(processes);
            turns.set(0);
            let answer = tokio::select! {
                biased;
                answer = tree.holds(deepest) => answer,
                () = &mut other => unreachable!(),
            };
            match answer {
                Ok(inside) => assert!(inside && is_told, "{processes}"),
                Err(error) => assert!(
                    !is_told && error.to_string() == "more than 128 processes are above it",
                    "{processes}: {error}"
                ),
            }
            // One for each that was looked at, but for the last.
            let least = processes.min(ANCESTORS) - 1;
            assert!(turns.get() >= least, "{} turns", turns.get());
            drop(first.stdin.take());
            first.wait().unwrap();
        }
    }

    #[tokio::test]
    async fn what_descends_from_the_guard_is_inside_but_for_the_keeper() {
        let own = rustix::process::getpid();
        let mut child = sleep();
        let pid = child.id().cast_signed();
        let tree = |guard, keeper| Tree {
            guard,
            keeper,
            has_elders: false,
        };
        assert!(tree(own, None).holds(pid).await.unwrap());
        let parent = rustix::process::getppid().unwrap();
        assert!(tree(parent, None).holds(pid).await.unwrap(), "a grandchild");
        assert!(
            !tree(parent, Some(own)).holds(pid).await.unwrap(),
            "a child of the keeper"
        );
        assert!(
            !tree(Pid::from_child(&child), None)
                .holds(own.as_raw_nonzero().get())
                .await
                .unwrap()
        );
        assert!(!tree(own, None).holds(1).await.unwrap());
        assert!(tree(own, None).holds(0).await.is_err(), "of another namespace");
        let beside_others = Tree {
            has_elders: true,
            ..tree(own, None)
        };
        assert!(
            beside_others.holds(pid).await.is_err(),
            "it may descend from them"
        );
        assert!(!beside_others.holds(1).await.unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
