//! Precedence of the guard over what it has to stop: a real-time policy of the kernel's scheduler.

use rustix::process::getpriority_process;

/// Lets this thread run before all that is scheduled normally (`SCHED_FIFO` with the lowest priority, sched(7)),
/// where that is permitted (`CAP_SYS_NICE`, `RLIMIT_RTPRIO`). Whether it does now.
///
/// Children do not inherit it (`SCHED_RESET_ON_FORK`). That would also take from them a policy, or a precedence
/// (a nice value below 0), that a user has given to this process. So such a process is left as it is.
pub(crate) fn take_precedence() -> bool {
    let is_as_usual = getpriority_process(None).is_ok_and(|nice| nice >= 0);
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // The C library musl answers ENOSYS to its functions of these names.
    // SAFETY: the parameter outlives the call that reads it.
    unsafe {
        is_as_usual
            && libc::syscall(libc::SYS_sched_getscheduler, 0) == libc::c_long::from(libc::SCHED_OTHER)
            && libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const lowest) == 0
    }
}
