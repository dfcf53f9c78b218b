//! Precedence over what has to be stopped: a real-time policy of the kernel's scheduler.

use rustix::process::getpriority_process;

/// Whether this thread goes before all that is scheduled normally.
///
/// Nobody else gets its CPU while it computes. So it is for the short moments in which being late means two holders.
#[derive(Debug, Default)]
pub(crate) struct Precedence {
    is_taken: bool,
    /// It was refused, or a user has given this process a policy of its own.
    is_barred: bool,
}

impl Precedence {
    /// Takes it (`SCHED_FIFO` with the lowest priority, sched(7)) or gives it up; nothing where that is not permitted
    /// (`CAP_SYS_NICE`, `RLIMIT_RTPRIO`).
    ///
    /// Children do not inherit it (`SCHED_RESET_ON_FORK`). That would also take from them a policy, or a precedence
    /// (a nice value below 0), that a user has given to this process. So such a process is left as it is.
    pub(crate) fn set(&mut self, is_wanted: bool) {
        if self.is_taken == is_wanted || self.is_barred {
            return;
        }
        let is_set = if is_wanted {
            is_as_usual() && schedule(libc::SCHED_FIFO, 1)
        } else {
            schedule(libc::SCHED_OTHER, 0)
        };
        self.is_taken = is_set == is_wanted;
        self.is_barred = !is_set;
    }
}

/// Whether it has the policy and the nice value of most processes, or less than that.
fn is_as_usual() -> bool {
    // SAFETY: the call has no preconditions. The C library musl answers ENOSYS to its function of this name.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    policy & !libc::c_long::from(libc::SCHED_RESET_ON_FORK) == libc::c_long::from(libc::SCHED_OTHER)
        && getpriority_process(None).is_ok_and(|nice| nice >= 0)
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameter outlives the call that reads it. As above for musl.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter) == 0 }
}
