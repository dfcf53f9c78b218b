//! What the guard guards, as the event loop sees it.

use std::io;
use std::os::fd::BorrowedFd;

use lockkeeper_lock::FencingToken;
use rustix::process::Pid;

use super::schedule::{Event, Mode, Sight, Sweep};
use crate::link::protocol::Containment;

/// Something that can be started, stopped, and seen to be gone.
///
/// Nothing here allocates but [`Target::start`].
pub(super) trait Target {
    /// Which rules the schedule follows.
    fn mode(&self) -> Mode;

    fn containment(&self) -> Containment;

    /// Starts the application. Its success or failure comes as an event.
    fn start(&mut self, token: FencingToken) -> io::Result<()>;

    /// Prevents any other start of the application.
    fn remove_lease(&mut self) {}

    /// Sends a signal to the main process, if there is one.
    fn signal_main(&mut self, signo: u8);

    /// The keeper is this child of ours, which is not part of what is stopped.
    fn keeper_is(&mut self, _: Option<Pid>) {}

    /// The keeper, until it was reaped.
    fn keeper(&self) -> Option<Pid> {
        None
    }

    /// Does something to all processes, and says what it saw.
    fn sweep(&mut self, sweep: Sweep) -> Sight;

    /// Kills what has no right to run, and nothing else. It is asked for while the application may not run anyway.
    fn clear(&mut self) -> Sight {
        self.sweep(Sweep::Kill)
    }

    /// How many processes are left of what the last sweep has found, and the process id of one; zeros for what is not
    /// known.
    fn found(&mut self) -> (u32, u32);

    /// A process that was doubtful in the last sweep.
    fn in_doubt(&self) -> Option<u32> {
        None
    }

    /// Does what [`Target::sweep`] does, with signal 0.
    fn rehearse(&mut self);

    /// Reaps children that have ended. Called whenever some may have.
    fn reap(&mut self);

    /// The exit code of a `postStart` hook that has failed, for which the application is being ended; once.
    fn take_failed_hook(&mut self) -> Option<u8> {
        None
    }

    /// Whether [`Target::reap`] has left some to be reaped, so that the guard looks at its deadline in between.
    fn has_more_to_reap(&self) -> bool {
        false
    }

    /// File descriptors whose readability may mean news.
    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2];

    /// The next news of the application, if there is any.
    fn news(&mut self) -> Option<Event>;
}
