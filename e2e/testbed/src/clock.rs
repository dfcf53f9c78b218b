//! The clock by which the testbed waits.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since this machine started, on `CLOCK_BOOTTIME`: it never jumps, and goes on in suspend.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
