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

use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// Makes the child die with the thread that spawns it, and start in `namespace` if there is one.
pub(crate) fn bind(command: &mut Command, namespace: Option<Arc<File>>) {
    let parent = rustix::process::getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the child asked for the signal.
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

/// Moves this thread into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: only the flag CLONE_FILES would break Rust's rules; this unshares only the network.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}
