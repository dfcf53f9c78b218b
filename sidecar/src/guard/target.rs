//! What the guard guards, as the event loop sees it.

use std::io;
use std::os::fd::BorrowedFd;

use lockkeeper_lock::FencingToken;

use super::processes::Processes;
use super::schedule::{Event, Mode, Sight, Sweep};

/// Something that can be started, stopped, and seen to be gone.
///
/// Nothing here allocates but [`Target::start`].
pub(super) trait Target {
    /// Which rules the schedule follows.
    fn mode(&self) -> Mode;

    /// Starts the application. Its success or failure comes as an event.
    fn start(&mut self, token: FencingToken) -> io::Result<()>;

    /// Sees to it that nobody else starts the application.
    fn remove_lease(&mut self) {}

    /// Sends a signal to the main process, if there is one.
    fn signal_main(&mut self, signo: u8);

    /// Does something to all processes, and says what it saw.
    fn sweep(&mut self, sweep: Sweep) -> Sight;

    /// Reaps children that have ended. Called whenever some may have.
    fn reap(&mut self);

    /// File descriptors whose readability may mean news.
    fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2];

    /// The next news of the application, if there is any.
    fn news(&mut self) -> Option<Event>;
}

/// Signals all processes that are marked as guarded, and says what was there before the signal had
/// any effect. A sweep that could not see everything has not seen that nothing is left.
pub(super) fn sweep_marked(processes: &Processes, sweep: Sweep) -> Sight {
    use rustix::process::Signal;
    let incomplete = !processes.is_complete();
    let mut sight = Sight {
        alive: incomplete,
        unstopped: incomplete,
    };
    for process in processes.guarded() {
        sight.alive = true;
        sight.unstopped |= !process.is_stopped();
        let signal = match sweep {
            Sweep::Kill => Signal::KILL,
            Sweep::Stop => Signal::STOP,
            Sweep::Continue => Signal::CONT,
            Sweep::Look => continue,
        };
        if !(process.is_zombie() || sweep == Sweep::Stop && process.is_stopped()) {
            // Whoever could not be signalled is seen again by the next sweep, or is gone.
            let _ = processes.signal(process, signal);
        }
    }
    sight
}
