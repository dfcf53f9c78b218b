//! A chain of processes: each does some work, forks the next one and ends.
//!
//! Each lives only for a moment, and leaves nothing behind when the next one runs. So a search that looks at
//! processes one after the other may never catch up.

use std::io;

use crate::sys;

/// Begins a chain beside this process, each link of which does `work` before it makes the next one. If `work`
/// fails, the chain ends.
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
