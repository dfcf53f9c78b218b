//! Sentences of the guard, for a reader that may be frozen.

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

/// A sentence on stderr, if that takes it at once: a guard that waits for a frozen reader of its
/// output would miss its deadlines. A pipe that polls writable takes 4096 bytes.
pub(super) fn say(sentence: std::fmt::Arguments<'_>) {
    let stderr = rustix::stdio::stderr();
    let mut fds = [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    if rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready == 1) {
        eprintln!("lockkeeper guard: {sentence}");
    }
}
