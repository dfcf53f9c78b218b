//! The timer of the guard, on `CLOCK_BOOTTIME`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lockkeeper_lock::BootInstant;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

const NANOS: u64 = 1_000_000_000;

/// One timer; readable when it has gone off.
#[derive(Debug)]
pub(super) struct Timer(OwnedFd);

impl Timer {
    /// A timer that never goes off.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(rustix::time::timerfd_create(
            TimerfdClockId::Boottime,
            flags,
        )?))
    }

    /// Sets it to go off at a moment, at once if that has passed, or never.
    pub(super) fn arm(&self, at: Option<BootInstant>) -> io::Result<()> {
        // All zero disarms a timer, so the moment of boot becomes the one after it.
        let nanos = at.map_or(0, |at| at.as_nanos().clamp(1, i64::MAX as u64));
        let value = Timespec {
            tv_sec: (nanos / NANOS) as i64,
            tv_nsec: (nanos % NANOS) as i64,
        };
        let interval = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = Itimerspec {
            it_interval: interval,
            it_value: value,
        };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
