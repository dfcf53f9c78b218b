//! The few unsafe system calls of the testbed.
//!
//! Between `fork` and `exec` a child may only make system calls: no allocation, no locks. Each
//! closure below keeps to that.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// Makes the child die with the thread that spawns it, and start in the network `namespace` if there is one. `is_outside`:
/// the child is to be in another PID namespace than its parent, and does not see it.
pub(crate) fn bind(command: &mut Command, namespace: Option<Arc<File>>, is_outside: bool) {
    let parent = (!is_outside).then(rustix::process::getpid);
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the child asked for the signal.
        if rustix::process::getppid() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if let Some(namespace) = &namespace {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        Ok(())
    };
    // SAFETY: `prepare` makes prctl, getppid and setns calls only; an `io::Error` of an errno does
    // not allocate, and the namespace's file descriptor is open for as long as the closure lives.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// What the clock of another process's processor time shows.
pub(crate) fn cpu_time(pid: Pid) -> io::Result<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write to the variable that they are given, which lives until they return.
    let failed = unsafe {
        // The first one returns its error.
        match libc::clock_getcpuclockid(pid.as_raw_pid(), &raw mut clock) {
            0 => libc::clock_gettime(clock, &raw mut time) != 0,
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    match (seconds, nanos) {
        (Ok(seconds), Ok(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(io::Error::other("a processor time below zero")),
    }
}

/// Starts the child in a session of its own, so that a terminal's Ctrl-C does not reach it.
pub(crate) fn new_session(command: &mut Command) {
    // SAFETY: setsid is one system call.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// Has the kernel refuse to read an option of a socket, for the child and all that it starts, as a kernel that does not
/// know the option (seccomp(2)).
pub(crate) fn refuse_socket_option(command: &mut Command, option: libc::c_int) {
    /// Places in `seccomp_data` of a 64-bit machine with the lower half first: the call, and its third argument.
    const NUMBER: u32 = 0;
    const OPTION: u32 = 32;
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let load = |place| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, place);
    // If it is another one, `others` statements are left out.
    let is = |k, others| libc::sock_filter {
        jf: others,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k)
    };
    let answer = |k| statement(libc::BPF_RET | libc::BPF_K, k);
    let mut filter = [
        load(NUMBER),
        is(libc::SYS_getsockopt as u32, 3),
        load(OPTION),
        is(option as u32, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let forbid = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the kernel copies the program, which lives until then; without new privileges no right is needed.
        let is_set = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        if is_set {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: `forbid` makes two system calls and does not allocate.
    unsafe {
        command.pre_exec(forbid);
    }
}

/// Moves this thread into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: only the flag CLONE_FILES would break Rust's rules; this unshares only the network.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}
