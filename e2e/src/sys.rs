//! The few calls to the kernel that Rust cannot check.
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

use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// Has the child die with the thread that spawns it, and start in `namespace` if there is one.
pub(crate) fn bind(command: &mut Command, namespace: Option<Arc<File>>) {
    let parent = rustix::process::getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before it asked for the signal.
        if rustix::process::getppid() != Some(parent) {
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

/// Makes a process group of the child's own, without which a terminal's Ctrl-C reaches it too.
pub(crate) fn new_session(command: &mut Command) {
    // SAFETY: setsid is one system call.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// Moves this thread into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: the flag that breaks Rust's rules is CLONE_FILES; only the network is unshared here.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Splits this process in two; true in the child.
///
/// Only for a program with one thread, which is what [`crate::chain`] asks for.
pub(crate) fn fork() -> io::Result<bool> {
    // SAFETY: with one thread nobody else holds a lock in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid == 0),
    }
}

/// Ends this process at once, without flushing or destructors.
pub(crate) fn exit_now() -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(0) }
}
