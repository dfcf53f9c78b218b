//! Sentences of the guard, for a reader that may be frozen.

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use crate::link::protocol::Refusal;

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

/// The sentence of a guard that the keeper does not take.
pub(super) fn refusal(why: Refusal) -> &'static str {
    match why {
        Refusal::Another => {
            "the keeper has another guard already, whose process has not ended: only the first process of the \
             application's container runs `lockkeeper guard`, and nothing was started here"
        }
        Refusal::User => {
            "the keeper takes no guard of this user: name it with --guard-user of `lockkeeper sidecar`; nothing was \
             started here"
        }
        Refusal::Clock => {
            "the keeper is in another time namespace (time_namespaces(7)), so its deadlines mean nothing here: run \
             `lockkeeper sidecar` and `lockkeeper guard` in the same one; nothing was started here"
        }
    }
}
