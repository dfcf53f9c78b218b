//! The first process of the PID namespace of a run's application: its end proves the end of all that was in there.
//!
//! The kernel kills whatever is left in a PID namespace when its first process ends, and reports that end only when
//! nothing else is left (`zap_pid_ns_processes`). The guard is the parent of that process, and the keeper finds it
//! while the guard lives, since a killed guard names nothing any more.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::link::protocol::{Containment, FromGuard, ToGuard};

/// What the keeper knows of that process from the frames between guard and keeper.
#[derive(Debug, Default)]
pub(super) struct Known {
    is_in_namespace: bool,
    first: Option<First>,
}

/// The first process of a PID namespace.
#[derive(Debug)]
pub(super) struct First(OwnedFd);

impl Known {
    /// The guard, whose process id this is, has sent a frame: if it runs something now, that is in a namespace which
    /// stays the same until the guard is told to start something else. `lives` says whether the guard is still there: if
    /// it has ended, its number may be that of another process, with children of its own.
    pub(super) fn heard(&mut self, frame: &FromGuard, guard: Pid, lives: impl Fn() -> bool) {
        let has_started = match frame {
            FromGuard::Hello(hello) => {
                *self = Self {
                    is_in_namespace: hello.containment == Containment::Pidns,
                    first: None,
                };
                hello.tree.is_some()
            }
            FromGuard::Started { .. } => true,
            _ => false,
        };
        if self.is_in_namespace && has_started {
            // Asked last: then the number was the guard's while its child was found.
            self.first = First::below(guard).filter(|_| lives());
            let is_found = self.first.is_some();
            tracing::debug!(
                is_found,
                "Looked for the first process of the application's namespace"
            );
        }
    }

    /// The guard is sent a frame. What it starts because of that is in another namespace.
    pub(super) fn told(&mut self, frame: &ToGuard) {
        if matches!(frame, ToGuard::Grant(grant) if grant.start) {
            self.first = None;
        }
    }

    /// The first process of the namespace in which everything is that the guard has started.
    pub(super) fn first(&self) -> Option<&First> {
        self.first.as_ref()
    }
}

impl First {
    /// The only child of `guard` that is the first process of a PID namespace.
    fn below(guard: Pid) -> Option<Self> {
        let entries = std::fs::read_dir("/proc").ok()?;
        let mut found = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Pid::from_raw)
            .filter(|pid| is_first_below(*pid, guard))
            .filter_map(|pid| {
                let process = Self(pidfd_open(pid, PidfdFlags::empty()).ok()?);
                // Once more: the number might have become that of another process before.
                (is_first_below(pid, guard) && !process.has_ended()).then_some(process)
            });
        match (found.next(), found.next()) {
            (first, None) => first,
            _ => None,
        }
    }

    /// Whether it has ended, and with it all that was in its namespace.
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut fds, Some(&Timespec::default())) {
                Err(Errno::INTR) => {}
                Ok(_) => return fds[0].revents().contains(PollFlags::IN),
                Err(_) => return false,
            }
        }
    }

    /// Kills it, and all that is in its namespace.
    pub(super) fn kill(&self) {
        // It dies with its guard anyway.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

fn is_first_below(pid: Pid, guard: Pid) -> bool {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    std::fs::read_to_string(path).is_ok_and(|status| says_first_below(&status, guard))
}

/// Whether this is the status (`proc_pid_status(5)`) of a child of `guard` that is the first process of a namespace
/// below the one of this process.
fn says_first_below(status: &str, guard: Pid) -> bool {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let parent = value("PPid:").and_then(|parent| parent.trim().parse().ok());
    let mut numbers = value("NSpid:").unwrap_or_default().split_ascii_whitespace();
    parent == Some(guard.as_raw_nonzero().get())
        && numbers.next().is_some()
        && numbers.next_back() == Some("1")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use lockkeeper_lock::{BootInstant, FencingToken};

    use super::super::below;
    use super::*;
    use crate::guard::handed_to_keeper::{Below, RunId, Will};
    use crate::guard::{ContainmentChoice, Hold};
    use crate::link::protocol::{Grant, Hello};

    fn hello(containment: Containment) -> FromGuard {
        FromGuard::Hello(Hello {
            pid: 1,
            instance: 1,
            is_first: false,
            tree: None,
            has_ticket: false,
            containment,
            clock: 0,
        })
    }

    const STARTED: FromGuard = FromGuard::Started {
        token: FencingToken(1),
        pid: 0,
    };

    /// A process, in place of a guard, whose only child is the first process of a namespace. It ends with it.
    fn namespace() -> Child {
        Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "sh", "-c", "sleep 60 & wait"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("unshare, and root")
    }

    fn until(mut what: impl FnMut() -> bool) {
        let end = BootInstant::now() + Duration::from_secs(30);
        while !what() {
            assert!(BootInstant::now() < end, "it does not come about");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_end_of_the_first_process_of_a_namespace_is_seen_and_another_process_is_none() {
        let mut unshare = namespace();
        let guard = Pid::from_child(&unshare);
        until(|| First::below(guard).is_some());
        let mut known = Known::default();
        known.heard(&hello(Containment::Cgroup), guard, || true);
        known.heard(&STARTED, guard, || true);
        assert!(known.first().is_none(), "there is no namespace");
        known.heard(&hello(Containment::Pidns), guard, || true);
        assert!(known.first().is_none(), "nothing is started");
        known.heard(&STARTED, guard, || false);
        assert!(known.first().is_none(), "the number is of another process");
        known.heard(&STARTED, guard, || true);
        assert!(!known.first().expect("it is found").has_ended());
        // It is a child of another process.
        assert!(First::below(rustix::process::getpid()).is_none());
        known.first().expect("it is found").kill();
        until(|| known.first().expect("it is found").has_ended());
        unshare.wait().expect("reaped");
        assert!(First::below(guard).is_none());
    }

    #[test]
    fn the_end_of_the_pipe_of_a_namespaces_first_process_proves_nothing() {
        let mut unshare = namespace();
        let guard = Pid::from_child(&unshare);
        until(|| First::below(guard).is_some());
        let first = First::below(guard).expect("it is found");
        let hold = Hold::new(ContainmentChoice::Sweep).expect("nothing");
        let (mut will, pipe) = Will::make(RunId::draw(), &hold).expect("a pipe");
        drop(pipe);
        // Other tests fork, and their children may have the pipe for a moment.
        until(|| matches!(will.below(), Below::Ended { .. }));
        // It lives at this moment, and is killed then.
        assert_eq!(below(&mut will, Some(&first)), Below::Left { count: 0, pid: 0 });
        until(|| below(&mut will, Some(&first)) == Below::Ended { is_proof: true });
        unshare.wait().expect("reaped");
    }

    #[test]
    fn what_a_guard_is_told_to_start_is_in_no_namespace_that_is_known() {
        let mut unshare = namespace();
        let guard = Pid::from_child(&unshare);
        until(|| First::below(guard).is_some());
        let mut known = Known::default();
        known.heard(&hello(Containment::Pidns), guard, || true);
        known.heard(&STARTED, guard, || true);
        let grant = |start| {
            ToGuard::Grant(Grant {
                token: FencingToken(2),
                generation: 1,
                start,
                pause: false,
                term_at: BootInstant::now(),
                kill_at: BootInstant::now(),
            })
        };
        known.told(&grant(false));
        assert!(known.first().is_some(), "it is the same application");
        known.told(&grant(true));
        assert!(known.first().is_none());
        unshare.kill().expect("killed");
        unshare.wait().expect("reaped");
    }

    #[test]
    fn a_status_names_parent_and_numbers() {
        let guard = Pid::from_raw(7).expect("a number");
        let status = |parent, numbers| format!("Name:\tguard-anchor\nPPid:\t{parent}\nNSpid:\t{numbers}\n");
        assert!(says_first_below(&status(7, "12\t1"), guard));
        assert!(!says_first_below(&status(8, "12\t1"), guard), "another parent");
        assert!(!says_first_below(&status(7, "12\t2"), guard), "not the first");
        assert!(!says_first_below(&status(7, "1"), guard), "no namespace below");
        assert!(!says_first_below("", guard));
    }
}
