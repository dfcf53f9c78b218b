//! The one clock on the safety path.
//!
//! Every decision about whether a program may run uses `CLOCK_BOOTTIME`. It never jumps, and it goes on while the
//! machine is suspended, as the ensemble's clocks do. It is the same for all processes of a machine that are in one
//! time namespace (`time_namespaces(7)`). Keeper and guard exchange instants of it, so the keeper accepts only guards
//! of its own time namespace.

use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on this machine's `CLOCK_BOOTTIME`, in nanoseconds since boot.
///
/// It means nothing on another machine: never send it over the network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// The moment `nanos` nanoseconds after boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// What `CLOCK_BOOTTIME` shows now.
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// Time from `earlier` to this moment; zero when `earlier` is not earlier.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment less `duration`; the moment of boot when that would be before it.
    pub const fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub for BootInstant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}

impl fmt::Debug for BootInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after boot", Duration::from_nanos(self.0))
    }
}

const fn nanos(duration: Duration) -> u64 {
    // 584 years fit; a longer duration means for ever.
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}

/// Where the lock takes the time from: [`BootClock`], or a simulated clock in model tests.
pub trait Clock: Clone + Send + Sync + 'static {
    /// The moment now, which never goes back.
    fn now(&self) -> BootInstant;

    /// Waits for a while. It may wake late, never early; callers check [`Clock::now`] afterwards.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static;
}

/// `CLOCK_BOOTTIME` of this machine. Its timers are tokio's, which is fine: they start work, and never decide whether a
/// program may run.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> BootInstant {
        BootInstant::now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static {
        tokio::time::sleep(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_never_goes_below_boot_nor_beyond_the_end_of_time() {
        let start = BootInstant::from_nanos(5);
        assert_eq!(
            start.saturating_sub(Duration::from_secs(1)),
            BootInstant::from_nanos(0)
        );
        assert_eq!(start + Duration::MAX, BootInstant::from_nanos(u64::MAX));
        assert_eq!(start - BootInstant::from_nanos(9), Duration::ZERO);
    }

    #[test]
    fn the_boot_clock_does_not_go_backwards() {
        let first = BootClock.now();
        assert!(BootClock.now() >= first);
    }
}
