//! A chain of processes: each does something, forks the next one and ends.
//!
//! None of them lives long enough to be found twice, and nothing of one is left when the next one runs:
//! what looks for processes one after the other may never catch up.

use std::io;

use crate::sys;

/// Begins a chain beside this process, each link of which does `work` before it makes the next one. A
/// link that fails is the last.
///
/// Only for a program with one thread: the links are forks without `exec`.
///
/// # Errors
/// When the first link cannot be made.
pub fn begin(mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    if !sys::fork()? {
        return Ok(());
    }
    while work().is_ok() && sys::fork().unwrap_or(false) {}
    sys::exit_now()
}
